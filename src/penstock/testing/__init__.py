"""Test support for users and for Penstock's own suites: clocks, harnesses and database servers.

No other package imports this one. Import each module by its own name, so that a missing optional
dependency (such as a PostgreSQL driver) affects only the tests that need it.
"""
