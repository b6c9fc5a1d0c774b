"""Use cases of customers and API keys."""
