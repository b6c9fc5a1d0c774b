"""What operators read: overview, metrics, alerts, live processes."""
