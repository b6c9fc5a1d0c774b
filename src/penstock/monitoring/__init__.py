"""Monitoring for operators: overview, metrics, exports, verification, live processes."""
