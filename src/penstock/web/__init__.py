"""The dashboard, served alongside the API from the same use cases."""
