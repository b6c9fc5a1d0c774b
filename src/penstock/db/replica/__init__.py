"""A read replica for reads that tolerate lag."""
