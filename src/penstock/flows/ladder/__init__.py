"""The fallbacks of the cascade: the scheduler's fallback and self-heal."""
