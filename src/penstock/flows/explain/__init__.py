"""Explanations of flows, causes of delays, and traces."""
