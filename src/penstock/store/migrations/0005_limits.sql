-- migration: limits
-- breaking: no
-- Shared capacity and rate: limits, who holds them, who waits, and what the queue of runs needs of them.

-- both
-- A limit's row is the lock under which its capacity is judged. capacity: as configured (NULL: no
-- bound on holders); learned: what quota errors taught (NULL: nothing yet), between floor and
-- capacity. rate, burst: tokens per second and how many may be saved up; tokens as of tokens_at.
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
    burst double precision CHECK (burst >= 1),
    tokens double precision,
    tokens_at bigint,
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
-- (lease_id, token). run_id: held by a run from its admission to its end, without a time of its own.
CREATE TABLE limit_leases (
    lease_id {{id}},
    limit_id bigint NOT NULL REFERENCES limits (limit_id),
    customer bigint NOT NULL DEFAULT 0,
    weight integer NOT NULL DEFAULT 1 CHECK (weight >= 1),
    token bigint NOT NULL,
    holder text NOT NULL,
    request text NOT NULL,
    run_id bigint,
    asked_at bigint NOT NULL,
    since_at bigint NOT NULL,
    until_at bigint,
    UNIQUE (limit_id, request)
) {{fillfactor 70}};
CREATE INDEX limit_leases_of_run ON limit_leases (run_id) WHERE run_id IS NOT NULL;

-- Who waits, in order. broker: the process that answers for the waiter; its ticket is worth
-- nothing once until_at has passed.
CREATE TABLE limit_tickets (
    ticket {{id}},
    limit_id bigint NOT NULL REFERENCES limits (limit_id),
    customer bigint NOT NULL DEFAULT 0,
    weight integer NOT NULL DEFAULT 1 CHECK (weight >= 1),
    broker text NOT NULL,
    holder text NOT NULL,
    request text NOT NULL,
    run_id bigint,
    asked_at bigint NOT NULL,
    until_at bigint NOT NULL,
    UNIQUE (limit_id, request)
) {{fillfactor 70}};
CREATE INDEX limit_tickets_in_line ON limit_tickets (limit_id, ticket);

-- What a pending run has to hold before it may be claimed. Ready runs hold it already.
-- place: pass and priority decide who is next, as in the queue.
CREATE TABLE run_limits (
    run_id bigint NOT NULL,
    limit_id bigint NOT NULL REFERENCES limits (limit_id),
    customer bigint NOT NULL DEFAULT 0,
    weight integer NOT NULL DEFAULT 1 CHECK (weight >= 1),
    priority smallint NOT NULL,
    is_waiting boolean NOT NULL,
    PRIMARY KEY (run_id, limit_id)
);
CREATE INDEX run_limits_in_line ON run_limits (limit_id, priority DESC, run_id) WHERE is_waiting;

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
