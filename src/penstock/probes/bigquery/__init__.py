"""BigQuery: tables of a project, read by queries whose cost is estimated and bounded first."""
