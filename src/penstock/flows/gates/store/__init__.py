"""Decisions, triggers, breakers, overrides and interventions as stored."""
