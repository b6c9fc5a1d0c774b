"""Exporters of events: Prometheus, OpenTelemetry, OpenLineage, Sentry."""
