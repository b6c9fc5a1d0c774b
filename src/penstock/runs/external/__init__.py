"""Runs held by workers over HTTP: claim, heartbeat, report."""
