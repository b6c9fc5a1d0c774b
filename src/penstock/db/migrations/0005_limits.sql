-- migration: limits
-- breaking: no
-- Shared capacity and rate: limits, who holds them, who waits, and what the queue of runs needs of them.

-- both
-- A limit's row is the lock under which its capacity is judged. capacity: as configured (NULL: no
-- bound on holders); learned: what quota errors taught (NULL: nothing yet), between floor and
-- capacity. rate, burst: tokens per second and how many may be saved up; level: what is in the
-- bucket as of level_at, in 10^-12 tokens (negative: promised to those who wait).
CREATE TABLE limits (
    limit_id {{id}},
    customer bigint NOT NULL DEFAULT 0,
    name text NOT NULL CHECK (name <> ''),
    capacity integer CHECK (capacity >= 0),
    is_adaptive boolean NOT NULL DEFAULT FALSE,
    floor integer NOT NULL DEFAULT 1 CHECK (floor >= 1),
    learned double precision,
    learned_at bigint,
    lease_us bigint NOT NULL DEFAULT 600000000 CHECK (lease_us > 0),
    grace_us bigint NOT NULL DEFAULT 0 CHECK (grace_us >= 0),
    queue_max integer CHECK (queue_max >= 0),
    rate double precision CHECK (rate > 0),
    burst integer CHECK (burst >= 1),
    level bigint,
    level_at bigint,
    quota_errors bigint NOT NULL DEFAULT 0,
    last_quota_at bigint,
    is_declared boolean NOT NULL DEFAULT FALSE,
    version bigint NOT NULL DEFAULT 1,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    updated_by text NOT NULL DEFAULT '',
    UNIQUE (customer, name)
) {{fillfactor 50}};

-- Holders. Capacity is the sum of these rows' weights and nothing else: a release deletes by
-- (lease_id, token). lease_us: how long a renewal lasts; with until_at NULL, held by a run from its
-- admission to its end. since_at: from when on it may be used (a rate may make that later).
-- broker: the process that answers for the holder; is_taken: it knows of the lease, which
-- until then runs out early. Rows end only under the lock.
CREATE TABLE limit_leases (
    lease_id {{id}},
    limit_id bigint NOT NULL REFERENCES limits (limit_id),
    customer bigint NOT NULL DEFAULT 0,
    weight integer NOT NULL DEFAULT 1 CHECK (weight >= 1),
    token bigint NOT NULL,
    broker text NOT NULL DEFAULT '',
    holder text NOT NULL,
    request text NOT NULL,
    run_id bigint,
    is_taken boolean NOT NULL DEFAULT TRUE,
    lease_us bigint,
    asked_at bigint NOT NULL,
    since_at bigint NOT NULL,
    until_at bigint,
    UNIQUE (limit_id, request)
) {{fillfactor 70}};
CREATE INDEX limit_leases_of_run ON limit_leases (run_id) WHERE run_id IS NOT NULL;

-- Who waits, in order. broker: the process that answers for the waiter ('' for a snoozed run); a
-- ticket is worth nothing once until_at has passed. lease_us: for how long it wants to hold.
CREATE TABLE limit_tickets (
    ticket {{id}},
    limit_id bigint NOT NULL REFERENCES limits (limit_id),
    customer bigint NOT NULL DEFAULT 0,
    weight integer NOT NULL DEFAULT 1 CHECK (weight >= 1),
    broker text NOT NULL,
    holder text NOT NULL,
    request text NOT NULL,
    run_id bigint,
    lease_us bigint NOT NULL,
    asked_at bigint NOT NULL,
    until_at bigint NOT NULL,
    UNIQUE (limit_id, request)
) {{fillfactor 70}};
CREATE INDEX limit_tickets_in_line ON limit_tickets (limit_id, ticket);

-- What a processor's runs have to hold, as JSON (NULL: nothing), and how many limits a run stands
-- in line for (admission 4) or holds (ready or in hand). 0: it has nothing to do with any, or is
-- not in line yet.
ALTER TABLE processors ADD COLUMN limits text;
ALTER TABLE runs ADD COLUMN limits smallint NOT NULL DEFAULT 0;
CREATE INDEX runs_limited ON runs (limits, run_id) WHERE admission = 4;

-- The lines of waiting runs: all that a run needs, and in whose line it stands now (is_waiting).
-- level and pass: who is next, as in the queue; level 11 is urgent. Rows end when the run is
-- admitted: what it holds then is in limit_leases.
CREATE TABLE run_limits (
    run_id bigint NOT NULL,
    limit_id bigint NOT NULL REFERENCES limits (limit_id),
    customer bigint NOT NULL,
    weight integer NOT NULL DEFAULT 1 CHECK (weight >= 1),
    level smallint NOT NULL CHECK (level BETWEEN 1 AND 11),
    pass bigint NOT NULL,
    is_waiting boolean NOT NULL,
    lined_at bigint NOT NULL,
    PRIMARY KEY (run_id, limit_id)
);
CREATE INDEX run_limits_in_line ON run_limits (limit_id, level DESC, pass, run_id) WHERE is_waiting;
CREATE INDEX run_limits_of_customer ON run_limits (limit_id, customer, level, pass) WHERE is_waiting;

-- The last waits and holds of each limit.
CREATE TABLE limit_history (
    entry {{id}},
    limit_id bigint NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    holder text NOT NULL,
    run_id bigint,
    token bigint,
    weight integer NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('released', 'expired', 'forced', 'timeout', 'abandoned', 'refused', 'quota')),
    asked_at bigint,
    since_at bigint,
    at bigint NOT NULL
);
CREATE INDEX limit_history_of_limit ON limit_history (limit_id, entry);

-- only: postgres
ALTER TABLE limits SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE limit_leases SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE limit_tickets SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE run_limits SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);

-- Limits of the house hold for everybody: a bound caller's runs must be able to wait for them.
CREATE FUNCTION tenant_rules_0005()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('limits', 'SELECT, INSERT, UPDATE', '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))'),
    ('limit_leases', 'SELECT, INSERT, UPDATE, DELETE', '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))'),
    ('limit_tickets', 'SELECT, INSERT, UPDATE, DELETE', '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))'),
    ('run_limits', 'SELECT, INSERT, UPDATE, DELETE', '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))'),
    ('limit_history', 'SELECT, INSERT, DELETE', '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))')
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();
