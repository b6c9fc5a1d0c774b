"""Commands for customers and API keys."""
