"""The installation: processes, services, store, backlogs, pools, checks."""
