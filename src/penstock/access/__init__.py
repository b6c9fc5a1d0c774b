"""Access control: customers, API keys, roles and secrets."""
