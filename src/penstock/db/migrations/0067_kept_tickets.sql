-- migration: kept_tickets
-- breaking: no
-- The place of a snoozed run in a limit's queue while it cannot use a slot, so that its place and its
-- timeout count from its first request.

-- both
-- kept_until: the ticket cannot be granted until its run requests the slot again; its run is checked
-- at that time. NULL: it can be granted. until_at is past, so that older processes drop the ticket.
ALTER TABLE limit_tickets ADD COLUMN kept_until bigint;
