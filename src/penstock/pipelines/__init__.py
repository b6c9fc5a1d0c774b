"""What users declare: pipelines, phases, processors, needs, modes and parameters."""
