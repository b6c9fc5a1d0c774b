"""User declarations: pipelines, phases, processors, needs, modes and parameters."""
