"""What users and our own tests need to test against Penstock: servers, clocks, harnesses.

Nothing in the package imports this room. Each part is imported by its own name, so that a missing
optional dependency (a PostgreSQL driver, for one) is noticed only by the test that needs it.
"""
