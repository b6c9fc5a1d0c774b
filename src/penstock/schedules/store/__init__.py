"""Configs and the schedule as stored."""
