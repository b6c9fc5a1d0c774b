"""Format and delivery of notices for each kind of channel."""
