-- migration: pubsub
-- breaking: no
-- What clients of Google Pub/Sub expect of a bus: labels, exactly-once delivery, detached
-- subscriptions, snapshots and schemas.

-- both
-- labels: JSON of texts by name. schema_settings: JSON, NULL if messages have no schema.
ALTER TABLE topics ADD COLUMN labels text NOT NULL DEFAULT '{}';
ALTER TABLE topics ADD COLUMN schema_settings text;

-- detached_at: it receives nothing more and cannot be pulled. expires_after_us NULL: never.
ALTER TABLE subscriptions ADD COLUMN labels text NOT NULL DEFAULT '{}';
ALTER TABLE subscriptions ADD COLUMN is_exactly_once boolean NOT NULL DEFAULT FALSE;
ALTER TABLE subscriptions ADD COLUMN keeps_acked boolean NOT NULL DEFAULT FALSE;
ALTER TABLE subscriptions ADD COLUMN expires_after_us bigint CHECK (expires_after_us > 0);
ALTER TABLE subscriptions ADD COLUMN detached_at bigint;

-- born_at: when that round of the delivery began; NULL in rows of earlier versions.
ALTER TABLE settled ADD COLUMN born_at bigint;

-- The state of a subscription at a time. `settled` says what was acked by then, so that a snapshot
-- copies nothing. oldest_at: when its oldest message that was not acked was published.
CREATE TABLE snapshots (
    snapshot {{id}},
    customer bigint NOT NULL DEFAULT 0,
    name text NOT NULL CHECK (name <> ''),
    topic bigint NOT NULL REFERENCES topics (topic),
    subscription bigint NOT NULL,
    taken_at bigint NOT NULL,
    oldest_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    labels text NOT NULL DEFAULT '{}',
    created_by text NOT NULL DEFAULT '',
    UNIQUE (customer, name)
);
CREATE INDEX snapshots_of_topic ON snapshots (topic);
CREATE INDEX snapshots_by_end ON snapshots (expires_at);

-- A schema is all revisions of its name; the latest one is current.
CREATE TABLE schema_revisions (
    revision {{id}},
    customer bigint NOT NULL DEFAULT 0,
    name text NOT NULL CHECK (name <> ''),
    revision_id text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('avro', 'protobuf')),
    definition text NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL DEFAULT '',
    UNIQUE (customer, name, revision_id)
);

-- only: postgres
CREATE FUNCTION tenant_rules_0049()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, 'customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('snapshots', 'SELECT, INSERT, UPDATE, DELETE'),
    ('schema_revisions', 'SELECT, INSERT, DELETE')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
