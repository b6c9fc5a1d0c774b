-- migration: waiting_tickets
-- breaking: no
-- Tickets that wait, and kept tickets whose run is to be checked, are read without the other kept ones.

-- both
CREATE INDEX limit_tickets_waiting ON limit_tickets (limit_id, ticket) WHERE kept_until IS NULL;
CREATE INDEX limit_tickets_kept ON limit_tickets (limit_id, kept_until)
    WHERE kept_until IS NOT NULL;
