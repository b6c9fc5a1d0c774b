"""Alerts: the rules that open them, their states, silences and notification channels."""
