-- migration: bounded_reads
-- breaking: no
-- Tickets that wait, and kept tickets whose run is to be checked, are read without the other kept
-- ones; runs whose SLA has passed are read without those whose SLA has not.

-- both
CREATE INDEX limit_tickets_waiting ON limit_tickets (limit_id, ticket) WHERE kept_until IS NULL;
CREATE INDEX limit_tickets_kept ON limit_tickets (limit_id, kept_until)
    WHERE kept_until IS NOT NULL;
CREATE INDEX runs_by_deadline ON runs ((slot + sla_us))
    WHERE sla_us IS NOT NULL AND admission <> 2;
