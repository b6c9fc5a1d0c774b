"""Use cases of topics and subscriptions."""
