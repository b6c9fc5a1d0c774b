-- migration: cohorts
-- breaking: no
-- How many runs of each occurrence ended, so that the progress of a day is read without history.

-- both
-- Runs of configs that ended for good, by occurrence and processor; flows and events are not counted.
-- Every finishing transaction appends its own small delta (no contended row), a retry by hand a
-- negative one; upkeep folds deltas together and forgets them after two days.
CREATE TABLE cohort_sums (
    sum_id {{id}},
    slot bigint NOT NULL,
    processor bigint NOT NULL,
    completed bigint NOT NULL,
    dead bigint NOT NULL,
    cancelled bigint NOT NULL,
    ended_at bigint NOT NULL
);
CREATE INDEX cohort_sums_by_slot ON cohort_sums (slot);

-- Occurrences of today that did not start.
CREATE INDEX ledger_by_slot ON ledger (slot_from);

-- only: postgres
CREATE FUNCTION tenant_rules_0059()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$ SELECT 'cohort_sums', 'INSERT', 'open', NULL $$;
SELECT tenant_wall();
