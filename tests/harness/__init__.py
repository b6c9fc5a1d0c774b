"""The harness of our own suites: simulation, invariants, crashes and interleaving."""
