"""Calling a processor in a thread or in a child process."""
