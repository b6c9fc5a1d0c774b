"""Routes of customers and API keys."""
