"""The deterministic simulation as tests: seeds, determinism, and the bugs it must detect."""
