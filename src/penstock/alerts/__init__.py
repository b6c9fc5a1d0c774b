"""Alerts: rules that open them, states, silences, and the channels that bring them to people."""
