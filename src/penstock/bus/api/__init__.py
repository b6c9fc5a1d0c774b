"""Routes of topics, subscriptions and deliveries."""
