"""Where claimed runs execute: threads, the event loop, collected batches."""
