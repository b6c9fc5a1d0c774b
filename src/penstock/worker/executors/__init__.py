"""Executors of claimed runs: threads, the event loop, collected batches."""
