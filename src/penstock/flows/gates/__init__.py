"""Gates: evidence, verdicts, overrides, interventions and breakers."""
