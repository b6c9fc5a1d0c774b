"""The `nats` transport: topics and subscriptions as streams and consumers of NATS JetStream."""
