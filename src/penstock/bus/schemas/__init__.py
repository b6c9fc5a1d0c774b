"""Schemas of messages: definitions, and the check of messages against them."""
