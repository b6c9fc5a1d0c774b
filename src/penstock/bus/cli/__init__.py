"""Commands of topics and subscriptions."""
