-- migration: upkeep
-- breaking: no
-- Fair ranks in a key that stays fast beside an open snapshot; storage settings of hot tables.

-- both
-- The last fair rank given to each customer, per pool and level; customer 0 is the fair clock. On
-- PostgreSQL the rank is part of the key: an update leaves a dead version with a lower rank, which
-- is never read, however long another session keeps it from being vacuumed. Table `turns` is kept
-- for processes of the previous version.
CREATE TABLE fair_ranks (
    pool bigint NOT NULL,
    level smallint NOT NULL,
    customer bigint NOT NULL,
    fair_rank bigint NOT NULL,
    PRIMARY KEY (pool, level, customer{{pg:, fair_rank}})
);
INSERT INTO fair_ranks (pool, level, customer, fair_rank)
SELECT pool, level, customer, pass FROM turns;

-- only: postgres
ALTER TABLE fair_ranks SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE FUNCTION tenant_rules_0014()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    -- Customer 0 is the fair clock, which every claim moves.
    ('fair_ranks', 'SELECT, INSERT, UPDATE', '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))')
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();
