"""Alerts, silences, channels and notices as stored."""
