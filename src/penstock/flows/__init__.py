"""Flows: phases, triggers, completions and the orchestrator."""
