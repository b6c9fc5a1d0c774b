"""Customers, registered names and API keys as stored."""
