"""Commands of gates, overrides and interventions."""
