"""Alerts: rules, states, silences, notices and channels."""
