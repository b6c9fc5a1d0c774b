"""Tracking: the execution log of everything that executes, what one cause led to, and find."""
