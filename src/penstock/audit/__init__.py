"""The journal and its seals, the outbox, alerts and telemetry."""
