"""The rungs below the cascade: the scheduler's fallback and self-heal."""
