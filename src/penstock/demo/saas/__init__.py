"""The SaaS demo: a day of 1,000 customers."""
