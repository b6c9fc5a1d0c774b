"""Tests of telemetry: traces, metrics, lineage, errors."""
