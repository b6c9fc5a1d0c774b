"""Cron expressions and their occurrences in a time zone."""
