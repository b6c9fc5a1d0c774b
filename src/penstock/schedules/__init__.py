"""Configs and their schedules: cron and intervals, misfires, pauses and the scheduler."""
