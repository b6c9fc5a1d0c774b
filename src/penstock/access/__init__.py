"""Who may do what: customers, API keys, roles, secrets."""
