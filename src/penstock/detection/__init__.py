"""Detection: what is late, stuck, missing or at risk; the monitor service."""
