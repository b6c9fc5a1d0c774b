"""Rules about the source text itself, kept apart from the tests that apply and prove them."""
