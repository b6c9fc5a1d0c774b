"""Use cases of gates, overrides and interventions."""
