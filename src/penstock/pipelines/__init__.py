"""Declarations of users: pipelines, phases, processors, needs, modes and parameters."""
