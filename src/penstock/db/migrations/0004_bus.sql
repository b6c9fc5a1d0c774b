-- migration: bus
-- breaking: no
-- Topics, subscriptions, messages and deliveries; dead letters of deliveries beside those of runs.

-- only: postgres
CREATE SEQUENCE message_seq;

-- both
-- Customer 0 is the house: built-in topics and whatever an unbound caller declares.
-- A topic is named once per customer; messages carry its number. A deleted one gives its name up
-- (it is then called _deleted_<number>) and keeps its number for what refers to it.
ALTER TABLE topics RENAME TO listened_topics;
CREATE TABLE topics (
    topic {{id}},
    customer bigint NOT NULL DEFAULT 0,
    name text NOT NULL CHECK (name <> ''),
    retention_us bigint NOT NULL DEFAULT 604800000000 CHECK (retention_us > 0),
    created_at bigint NOT NULL,
    created_by text NOT NULL DEFAULT '',
    deleted_at bigint,
    UNIQUE (customer, name)
);
INSERT INTO topics (name, created_at) SELECT topic, created_at FROM listened_topics;
DROP TABLE listened_topics;

-- kind: pull (REST, Python), push (HTTP POST), bound (a config, a processor or completions, in the
-- store's own transaction). dead_letter_topic NULL: no dead-letter policy. deleted_at: gone, its
-- number is kept for what refers to it.
CREATE TABLE subscriptions (
    subscription {{id}},
    customer bigint NOT NULL DEFAULT 0,
    topic bigint NOT NULL REFERENCES topics (topic),
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('pull', 'push', 'bound')),
    ack_deadline_us bigint NOT NULL DEFAULT 60000000 CHECK (ack_deadline_us BETWEEN 10000000 AND 600000000),
    min_backoff_us bigint NOT NULL DEFAULT 10000000 CHECK (min_backoff_us > 0),
    max_backoff_us bigint NOT NULL DEFAULT 600000000 CHECK (max_backoff_us >= min_backoff_us),
    max_attempts integer NOT NULL DEFAULT 5 CHECK (max_attempts BETWEEN 5 AND 100),
    dead_letter_topic bigint REFERENCES topics (topic),
    retention_us bigint NOT NULL DEFAULT 604800000000 CHECK (retention_us > 0),
    is_ordered boolean NOT NULL DEFAULT FALSE,
    filter text,
    push text,
    binding text,
    auto_replay text,
    replays_max integer NOT NULL DEFAULT 3 CHECK (replays_max >= 0),
    is_paused boolean NOT NULL DEFAULT FALSE,
    version bigint NOT NULL DEFAULT 1,
    created_at bigint NOT NULL,
    created_by text NOT NULL DEFAULT '',
    deleted_at bigint
);
CREATE UNIQUE INDEX subscriptions_by_name ON subscriptions (customer, name) WHERE deleted_at IS NULL;
CREATE INDEX subscriptions_of_topic ON subscriptions (topic) WHERE deleted_at IS NULL;

-- What was accepted, once. Bytes as they came; attributes as canonical JSON.
CREATE TABLE messages (
    message_id {{pg:bigint NOT NULL DEFAULT nextval('message_seq')}}{{lite:integer PRIMARY KEY AUTOINCREMENT}},
    topic bigint NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    data {{pg:bytea}}{{lite:blob}} NOT NULL,
    attributes text NOT NULL DEFAULT '{}',
    ordering_key text,
    published_at bigint NOT NULL,
    expires_at bigint NOT NULL
) {{pg:PARTITION BY RANGE (published_at)}};
CREATE INDEX messages_of_topic ON messages (topic, published_at, message_id);

-- Publishing again under the same id within its window answers the first message.
CREATE TABLE publish_marks (
    topic bigint NOT NULL,
    dedupe_id text NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    body_hash text NOT NULL,
    message_id bigint NOT NULL,
    published_at bigint NOT NULL,
    PRIMARY KEY (topic, dedupe_id)
);
CREATE INDEX publish_marks_by_time ON publish_marks (published_at);

-- Narrow and hot: one row per message and subscription that is not settled yet.
-- state: 0 ready, 1 leased, 2 delayed until due_at, 3 behind its ordering key.
-- epoch: deliveries so far in all rounds (the ack id names it); attempt: those of this round.
-- born_at: when this round began, from which retention counts. copy_id: the message whose content
-- is delivered instead (edited, or kept among the dead letters). ordering_key: only of ordered
-- subscriptions; the unique index is what keeps two messages of a key from being in flight.
-- No index on until_at: extensions stay heap-only, the sweep reads the few that are leased.
CREATE TABLE deliveries (
    subscription bigint NOT NULL,
    message_id bigint NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    published_at bigint NOT NULL,
    born_at bigint NOT NULL,
    state smallint NOT NULL CHECK (state BETWEEN 0 AND 3),
    due_at bigint NOT NULL,
    until_at bigint,
    holder text,
    round smallint NOT NULL DEFAULT 1,
    replays smallint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    epoch integer NOT NULL DEFAULT 0,
    ordering_key text,
    copy_id bigint,
    last_error text,
    PRIMARY KEY (subscription, message_id)
) {{fillfactor 70}};
CREATE INDEX deliveries_ready ON deliveries (subscription, message_id) WHERE state = 0;
CREATE INDEX deliveries_leased ON deliveries (subscription, message_id) WHERE state = 1;
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE state = 2;
CREATE INDEX deliveries_delayed ON deliveries (subscription, due_at) WHERE state = 2;
CREATE UNIQUE INDEX deliveries_heads ON deliveries (subscription, ordering_key)
    WHERE ordering_key IS NOT NULL AND state <> 3;
CREATE INDEX deliveries_behind ON deliveries (subscription, ordering_key, message_id) WHERE state = 3;

-- What became of a delivery, once per round.
CREATE TABLE settled (
    subscription bigint NOT NULL,
    message_id bigint NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    round smallint NOT NULL,
    epoch integer NOT NULL,
    attempts integer NOT NULL,
    replays smallint NOT NULL DEFAULT 0,
    outcome text NOT NULL CHECK (outcome IN ('acked', 'dead_lettered', 'expired', 'purged')),
    published_at bigint NOT NULL,
    at bigint NOT NULL
) {{pg:PARTITION BY RANGE (at)}};
CREATE INDEX settled_by_message ON settled (message_id, subscription);

-- Sums per hour and subscription: transactions append their deltas, the pruner folds them. They
-- are also the tombstones of what retention removed.
CREATE TABLE delivery_sums (
    sum_id {{id}},
    subscription bigint NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    hour_at bigint NOT NULL,
    accepted bigint NOT NULL DEFAULT 0,
    delivered bigint NOT NULL DEFAULT 0,
    acked bigint NOT NULL DEFAULT 0,
    nacked bigint NOT NULL DEFAULT 0,
    lapsed bigint NOT NULL DEFAULT 0,
    dead_lettered bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    purged bigint NOT NULL DEFAULT 0,
    replayed bigint NOT NULL DEFAULT 0
);
CREATE INDEX delivery_sums_by_hour ON delivery_sums (subscription, hour_at);

-- A dead letter of a delivery: subject is the message in the dead-letter topic; message_id, round
-- and subscription are what died.
ALTER TABLE dead_letters ADD COLUMN subscription bigint;
ALTER TABLE dead_letters ADD COLUMN topic bigint;
ALTER TABLE dead_letters ADD COLUMN message_id bigint;
ALTER TABLE dead_letters ADD COLUMN round smallint;
ALTER TABLE dead_letters ADD COLUMN pipeline bigint;
ALTER TABLE dead_letters ADD COLUMN error_kind text;
CREATE UNIQUE INDEX dead_letters_once_per_round ON dead_letters (subscription, message_id, round)
    WHERE kind = 'delivery';

-- A message that leaves with a transaction may carry attributes, bytes of its own and its customer.
ALTER TABLE outbox ADD COLUMN customer bigint NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN attributes text NOT NULL DEFAULT '{}';

-- only: sqlite
CREATE INDEX messages_by_expiry ON messages (expires_at);
CREATE INDEX settled_by_time ON settled (at);

-- only: postgres
CREATE TABLE messages_rest PARTITION OF messages DEFAULT;
CREATE INDEX messages_by_id ON messages (message_id);
CREATE TABLE settled_rest PARTITION OF settled DEFAULT;
CREATE INDEX settled_by_time ON settled USING brin (at);
ALTER TABLE deliveries SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE subscriptions SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- As before, and for messages and what became of them.
CREATE OR REPLACE FUNCTION ensure_partitions(at_us bigint, weeks bigint) RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '100ms' AS
$$
DECLARE
    week_us constant bigint := 604800000000;
    base bigint := at_us - at_us % week_us;
    made integer := 0;
    parent record;
    part text;
    lower_us bigint;
    taken boolean;
BEGIN
    FOR parent IN SELECT * FROM (VALUES
        ('history', 'finished_at'), ('journal', 'at'), ('execution_log', 'completed_at'),
        ('messages', 'published_at'), ('settled', 'at')) AS p (name, at)
    LOOP
        FOR i IN 0..weeks LOOP
            lower_us := base + i * week_us;
            part := parent.name || '_' || to_char(to_timestamp(lower_us / 1000000) AT TIME ZONE 'UTC', 'YYYYMMDD');
            CONTINUE WHEN to_regclass(part) IS NOT NULL;
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE %I >= $1 AND %I < $2)',
                parent.name || '_rest', parent.at, parent.at)
                INTO taken USING lower_us, lower_us + week_us;
            CONTINUE WHEN taken;
            EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%s) TO (%s)',
                part, parent.name, lower_us, lower_us + week_us);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;
SELECT ensure_partitions(db_now(), 4);

-- A week of messages goes when the last of them has expired and nobody still waits for one of that
-- week (what is delivered again keeps its message by expires_at).
CREATE FUNCTION drop_messages(now_us bigint) RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '100ms' AS
$$
DECLARE
    part record;
    live boolean;
    waiting_us bigint;
    dropped integer := 0;
BEGIN
    SELECT min((SELECT d.published_at FROM deliveries d WHERE d.subscription = s.subscription
        ORDER BY d.message_id LIMIT 1)) INTO waiting_us FROM subscriptions s;
    FOR part IN
        SELECT c.relname, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''?(\d+)''?\)')::bigint AS upper_us
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'messages'::regclass
    LOOP
        CONTINUE WHEN part.upper_us IS NULL OR part.upper_us > now_us OR part.upper_us > waiting_us;
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE expires_at >= $1)', part.relname)
            INTO live USING now_us;
        CONTINUE WHEN live;
        EXECUTE format('DROP TABLE %I', part.relname);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

-- A bound caller's transactions announce on the house's topics, so they must find them.
CREATE FUNCTION tenant_rules_0004()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, 'customer = (SELECT tenant_customer())', v.seen
FROM (VALUES
    ('topics', 'SELECT, INSERT, UPDATE', 'customer = 0 AND (SELECT tenant_customer()) IS NOT NULL'),
    ('subscriptions', 'SELECT, INSERT, UPDATE', NULL),
    ('messages', 'SELECT, INSERT', NULL),
    ('publish_marks', 'SELECT, INSERT', NULL),
    ('deliveries', 'SELECT, INSERT, UPDATE, DELETE', NULL),
    ('settled', 'SELECT, INSERT', NULL),
    ('delivery_sums', 'SELECT, INSERT', NULL)
) AS v (relation, privileges, seen)
$$;
ALTER FUNCTION tenant_wall() RENAME TO tenant_wall_cascade;
CREATE FUNCTION tenant_wall() RETURNS boolean LANGUAGE plpgsql AS
$$
DECLARE
    stands boolean := tenant_wall_cascade();
BEGIN
    IF to_regrole('penstock_tenant') IS NOT NULL THEN
        GRANT USAGE ON SEQUENCE message_seq TO penstock_tenant;
    END IF;
    RETURN stands;
END
$$;
SELECT tenant_wall();
