-- migration: attempts
-- breaking: no
-- Subscriptions may have a single attempt and no backoff.

-- only: postgres
ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_max_attempts_check;
ALTER TABLE subscriptions ADD CHECK (max_attempts BETWEEN 1 AND 100);
ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_min_backoff_us_check;
ALTER TABLE subscriptions ADD CHECK (min_backoff_us >= 0);

-- only: sqlite
-- SQLite cannot change a check: the table is written again. Nothing refers to it by a foreign key.
CREATE TABLE subscriptions_new (
    subscription {{id}},
    customer bigint NOT NULL DEFAULT 0,
    topic bigint NOT NULL REFERENCES topics (topic),
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('pull', 'push', 'bound')),
    ack_deadline_us bigint NOT NULL DEFAULT 60000000 CHECK (ack_deadline_us BETWEEN 10000000 AND 600000000),
    min_backoff_us bigint NOT NULL DEFAULT 10000000 CHECK (min_backoff_us >= 0),
    max_backoff_us bigint NOT NULL DEFAULT 600000000 CHECK (max_backoff_us >= min_backoff_us),
    max_attempts integer NOT NULL DEFAULT 5 CHECK (max_attempts BETWEEN 1 AND 100),
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
INSERT INTO subscriptions_new SELECT * FROM subscriptions ORDER BY subscription;
DROP TABLE subscriptions;
ALTER TABLE subscriptions_new RENAME TO subscriptions;
CREATE UNIQUE INDEX subscriptions_by_name ON subscriptions (customer, name) WHERE deleted_at IS NULL;
CREATE INDEX subscriptions_of_topic ON subscriptions (topic) WHERE deleted_at IS NULL;
