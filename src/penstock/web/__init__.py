"""The dashboard: pages for people, served beside the API from the same use cases."""
