"""The `pubsub` transport: topics and subscriptions of Google Pub/Sub or of a compatible server."""
