"""Tests of the NATS transport alone."""
