"""Commands for API keys."""
