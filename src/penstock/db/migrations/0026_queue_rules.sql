-- migration: queue_rules
-- breaking: no
-- Weights and concurrency of customers, and the expiry of runs that wait.

-- both
-- Settings of customers that differ from the defaults; a customer without a row has weight 1 and no
-- maximum. stride: what a run adds to the customer's fair rank, 1,000,000 divided by the weight.
-- rerank_after: the waiting runs above this one, up to rerank_to, still have the ranks of the
-- previous weight (NULL: none). capped_at: when `concurrency` changed; NULL once it is applied to
-- all live runs.
CREATE TABLE customer_settings (
    customer bigint PRIMARY KEY REFERENCES customers (customer),
    weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0),
    stride bigint NOT NULL DEFAULT 1000000 CHECK (stride > 0),
    concurrency integer CHECK (concurrency >= 1),
    rerank_after bigint,
    rerank_to bigint NOT NULL DEFAULT 0,
    capped_at bigint,
    updated_at bigint NOT NULL,
    updated_by text NOT NULL
);

-- A run used to add 1 to its customer's rank.
UPDATE fair_ranks SET fair_rank = fair_rank * 1000000;
UPDATE runs SET pass = pass * 1000000 WHERE admission = 0;
UPDATE run_limits SET pass = pass * 1000000;

-- How long a run may wait after it is due; NULL: for ever.
ALTER TABLE processors ADD COLUMN expires_us bigint;
ALTER TABLE configs ADD COLUMN expires_us bigint;
ALTER TABLE runs ADD COLUMN expires_us bigint;
CREATE INDEX runs_expiring ON runs ((scheduled_time + expires_us))
    WHERE expires_us IS NOT NULL AND admission < 6;

-- only: postgres
-- Not validated: it accepts more than the previous one.
ALTER TABLE history DROP CONSTRAINT history_final_state_check;
ALTER TABLE history ADD CONSTRAINT history_final_state_check
    CHECK (final_state IN ('COMPLETED', 'FAILED', 'TIMEOUT', 'CANCELLED', 'EXPIRED')) NOT VALID;

CREATE FUNCTION tenant_rules_0026()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    -- Only unbound callers change them.
    ('customer_settings', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())')
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();

-- only: sqlite
-- SQLite cannot change the constraint of a column: another column replaces it.
DROP TRIGGER history_is_final;
ALTER TABLE history ADD COLUMN ended_as text NOT NULL DEFAULT 'FAILED'
    CHECK (ended_as IN ('COMPLETED', 'FAILED', 'TIMEOUT', 'CANCELLED', 'EXPIRED'));
UPDATE history SET ended_as = final_state;
ALTER TABLE history DROP COLUMN final_state;
ALTER TABLE history RENAME COLUMN ended_as TO final_state;
CREATE TRIGGER history_is_final BEFORE UPDATE ON history
BEGIN
    SELECT RAISE(ABORT, 'rows of history never change');
END;
