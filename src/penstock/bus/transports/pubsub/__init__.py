"""The `pubsub` transport: topics and subscriptions of Google Pub/Sub, or of what serves its API."""
