"""The run queue as stored."""
