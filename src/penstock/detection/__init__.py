"""Detection of late, stuck, missing and at-risk work, and the monitor service."""
