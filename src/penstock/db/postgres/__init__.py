"""PostgreSQL: pooled connections, pipelined statements, LISTEN/NOTIFY."""
