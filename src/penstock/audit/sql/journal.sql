-- Journal, seals, outbox, alerts and idempotency keys.

-- name: journal_append_many
-- Insert entries for transitions and decisions, in the transaction they describe.
-- scope: system (the batch names its customers)
-- batch: kind text, subject bigint, customer bigint, action text, actor text, from_state text,
--   to_state text, token bigint, why text, detail text
INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, token, why,
    detail)
SELECT {{now}}, batch.kind, batch.subject, batch.customer, batch.action, batch.actor,
    batch.from_state, batch.to_state, batch.token, batch.why, batch.detail
FROM {{batch}} ORDER BY ord;

-- name: journal_interrupt_many
-- Record the holder and token of held runs that are about to return to the queue. Locks the runs,
-- so that the entry matches what happens.
-- scope: system (by token, known only to the holder)
-- batch: run_id bigint, token bigint
INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, token, why)
SELECT {{now}}, 'run', r.run_id, r.customer, CAST(:action AS text), CAST(:actor AS text), r.state,
    'PENDING', r.token, r.claimed_by
FROM {{batch}} JOIN runs r ON r.run_id = batch.run_id AND r.token = batch.token
WHERE r.state = 'CLAIMED' OR (r.state = 'RUNNING' AND CAST(:action AS text) = 'released')
ORDER BY batch.ord {{pg:FOR UPDATE OF r}};

-- name: journal_for_subject
-- The journal entries of one subject, oldest first.
-- scope: system (the caller has checked the subject)
SELECT seq, at, kind, subject, customer, action, actor, from_state, to_state, token, why, detail
FROM journal WHERE subject = :subject AND kind = :kind ORDER BY at, seq LIMIT :limit;

-- fragment: sealed_columns [postgres]
j.xid::text, j.seq, j.at, j.kind, j.subject, j.customer, j.action, j.actor, j.from_state,
    j.to_state, j.token, j.why, j.detail

-- fragment: sealed_columns [sqlite]
'0', j.seq, j.at, j.kind, j.subject, j.customer, j.action, j.actor, j.from_state,
    j.to_state, j.token, j.why, j.detail

-- name: journal_unsealed [postgres]
-- The next entries of a cluster to seal, in commit-safe order: only of transactions older than every
-- open one. Transactions of an earlier cluster have all ended.
-- scope: system (seals cover all customers)
SELECT {{sealed_columns}}
FROM journal j
WHERE j.cluster = :cluster
    AND (j.xid, j.seq) > (CAST(:after_xid AS text)::xid8, CAST(:after_seq AS bigint))
    AND (:cluster < (SELECT max(cluster) FROM clusters)
        OR j.xid < pg_snapshot_xmin(pg_current_snapshot()))
ORDER BY j.xid, j.seq LIMIT :n;

-- name: journal_unsealed [sqlite]
-- differs because one writer commits in order: seq alone is safe.
-- scope: system (seals cover all customers)
SELECT {{sealed_columns}}
FROM journal j
WHERE j.seq > :after_seq AND :after_xid IS NOT NULL AND j.cluster = :cluster
ORDER BY j.seq LIMIT :n;

-- name: journal_sealed [postgres]
-- The entries of a block: those after the previous block, up to its last entry.
-- scope: system (seals cover all customers)
SELECT {{sealed_columns}}
FROM journal j
WHERE j.cluster = :cluster
    AND (j.xid, j.seq) > (CAST(:after_xid AS text)::xid8, CAST(:after_seq AS bigint))
    AND (j.xid, j.seq) <= (CAST(:to_xid AS text)::xid8, CAST(:to_seq AS bigint))
ORDER BY j.xid, j.seq LIMIT :n;

-- name: journal_sealed [sqlite]
-- differs because one writer commits in order: seq alone is safe.
-- scope: system (seals cover all customers)
SELECT {{sealed_columns}}
FROM journal j
WHERE j.seq > :after_seq AND j.seq <= :to_seq AND j.cluster = :cluster
    AND :after_xid IS NOT NULL AND :to_xid IS NOT NULL
ORDER BY j.seq LIMIT :n;

-- name: journal_sealed_count [postgres]
-- How many entries a block has that is to be sealed, up to one more than `entries`. The order and the
-- limit keep the plan on the index: without them PostgreSQL started parallel workers for each block
-- of a large partition (measured: 15 ms instead of 1 ms).
-- scope: system (seals cover all customers)
SELECT count(*) FROM (
    SELECT j.seq FROM journal j
    WHERE j.cluster = :cluster
        AND (j.xid, j.seq) > (CAST(:after_xid AS text)::xid8, CAST(:after_seq AS bigint))
        AND (j.xid, j.seq) <= (CAST(:to_xid AS text)::xid8, CAST(:to_seq AS bigint))
    ORDER BY j.xid, j.seq LIMIT CAST(:entries AS bigint) + 1) AS b;

-- name: journal_sealed_count [sqlite]
-- differs because one writer commits in order: seq alone is safe.
-- scope: system (seals cover all customers)
SELECT count(*) FROM (
    SELECT j.seq FROM journal j
    WHERE j.seq > :after_seq AND j.seq <= :to_seq AND j.cluster = :cluster
        AND :after_xid IS NOT NULL AND :to_xid IS NOT NULL
    ORDER BY j.seq LIMIT :entries + 1) AS b;

-- name: journal_copied [postgres]
-- The entries of a block that another PostgreSQL sealed, after copies (`penstock db copy`).
-- scope: system (seals cover all customers)
SELECT {{sealed_columns}}
FROM journal j
WHERE j.cluster = :cluster AND j.cluster < 0
    AND (j.xid, j.seq) > (CAST(:after_xid AS text)::xid8, CAST(:after_seq AS bigint))
    AND (j.xid, j.seq) <= (CAST(:to_xid AS text)::xid8, CAST(:to_seq AS bigint))
ORDER BY j.xid, j.seq LIMIT :n;

-- name: journal_copied [sqlite]
-- differs because SQLite stores transaction ids as numbers.
-- scope: system (seals cover all customers)
SELECT CAST(j.xid AS text), {{copied_columns}}
FROM journal j
WHERE j.cluster = :cluster AND j.cluster < 0
    AND (j.xid, j.seq) > (CAST(:after_xid AS integer), :after_seq)
    AND (j.xid, j.seq) <= (CAST(:to_xid AS integer), :to_seq)
ORDER BY j.xid, j.seq LIMIT :n;

-- fragment: copied_columns
j.seq, j.at, j.kind, j.subject, j.customer, j.action, j.actor, j.from_state, j.to_state, j.token,
    j.why, j.detail

-- name: journal_cluster [postgres]
-- The cluster that writes journal entries now.
-- scope: system (no customer's rows)
SELECT max(cluster) FROM clusters;

-- name: journal_cluster [sqlite]
-- differs because SQLite has no clusters.
-- scope: system (no customer's rows)
SELECT 0;

-- name: seal_plan [postgres]
-- Plan the reads of this transaction by indexes: other reads may scan, and without statistics, as
-- in the first minutes of a partition, they would scan and sort the whole partition.
-- scope: system (settings, no rows)
SELECT set_config('enable_seqscan', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: seal_plan [sqlite]
-- differs because SQLite has no such settings.
-- scope: system (settings, no rows)
SELECT 'off', 'force_generic_plan';

-- name: seal_last
-- The newest seal; `seal_lock` serializes sealers.
-- scope: system (seals cover all customers)
SELECT block, to_seq, to_xid, head, cluster FROM seals ORDER BY block DESC LIMIT 1;

-- name: seal_lock [postgres]
-- Allow one sealer at a time.
-- scope: system (a lock, no rows)
SELECT pg_try_advisory_xact_lock(7231009);

-- name: seal_lock [sqlite]
-- differs because SQLite has one writer.
-- scope: system (a lock, no rows)
SELECT TRUE;

-- name: seal_put
-- Seal a block of the journal.
-- scope: system (seals cover all customers)
INSERT INTO seals (from_seq, to_seq, to_xid, cluster, entries, root, previous, head, sealed_at, version)
VALUES (:from_seq, :to_seq, :to_xid, :cluster, :entries, :root, :previous, :head, :sealed_at, :version)
RETURNING block;

-- name: seal_announce
-- Publish the head of a block with this transaction, if heads have a subscription.
-- scope: system (system topics have no customer)
INSERT INTO outbox (topic, ordering_key, payload, created_at)
SELECT t.name, NULL, :payload, {{now}} FROM topics t
WHERE t.customer = 0 AND t.name = :topic AND t.deleted_at IS NULL;

-- name: seal_list
-- Seals in order, for verification.
-- scope: system (seals cover all customers)
SELECT block, from_seq, to_seq, to_xid, entries, root, previous, head, sealed_at, cluster, version
FROM seals WHERE block > :after ORDER BY block LIMIT :limit;

-- name: seal_list_newest
-- Seals in reverse order.
-- scope: system (seals cover all customers)
SELECT block, from_seq, to_seq, to_xid, entries, root, previous, head, sealed_at, cluster, version
FROM seals WHERE block < :before ORDER BY block DESC LIMIT :limit;

-- name: seal_heads
-- Heads of blocks.
-- scope: system (seals cover all customers)
SELECT block, head FROM seals WHERE block {{any blocks}};

-- name: outbox_put
-- Insert a message that is published once this transaction has committed.
-- scope: system (system topics have no customer)
INSERT INTO outbox (topic, ordering_key, payload, created_at)
VALUES (:topic, :ordering_key, :payload, {{now}});

-- name: outbox_take
-- Delete and return unsent rows; never by a high-water mark, so that no slow transaction is missed.
-- scope: system (outbox publisher)
WITH taken AS MATERIALIZED (
    SELECT outbox_id FROM outbox ORDER BY outbox_id LIMIT :n {{pg:FOR UPDATE SKIP LOCKED}})
DELETE FROM outbox WHERE outbox_id IN (SELECT outbox_id FROM taken)
RETURNING outbox_id, topic, ordering_key, payload, created_at, customer, attributes;

-- name: outbox_remove
-- Delete and return one row that cannot be published.
-- scope: system (outbox publisher)
DELETE FROM outbox WHERE outbox_id = :outbox_id
RETURNING outbox_id, topic, ordering_key, payload, created_at, customer, attributes;

-- name: outbox_count
-- Number of messages that wait for the outbox publisher, up to a bound, and when the first was
-- written.
-- scope: system (operators)
SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT 100000) AS waiting),
    (SELECT created_at FROM outbox ORDER BY outbox_id LIMIT 1);

-- fragment: alert_columns
-- In the order of audit.rows.AlertRow.
a.alert_id, a.rule, a.dedupe_key, a.severity, c.customer_id, a.subject_kind, a.subject,
    a.message, a.detail, a.state, a.times, a.opened_at, a.last_at, a.closed_at, a.closed_by,
    a.pipeline, a.acknowledged_at, a.acknowledged_by, a.note, a.silence

-- name: alert_open
-- Open an alert, or count a recurrence while it is open.
-- scope: system (alerts name their customer)
INSERT INTO alerts (rule, dedupe_key, severity, customer, subject_kind, subject, message, detail,
    pipeline, opened_at, last_at)
VALUES (:rule, :dedupe_key, :severity, :customer, :subject_kind, :subject, :message, :detail,
    coalesce(CAST(:pipeline AS text), CASE CAST(:subject_kind AS text)
        WHEN 'config' THEN (SELECT p.name FROM configs f
            JOIN pipelines p ON p.pipeline = f.pipeline WHERE f.config_id = :subject)
        WHEN 'flow' THEN (SELECT p.name FROM flows w
            JOIN pipelines p ON p.pipeline = w.pipeline WHERE w.flow_id = :subject)
        WHEN 'run' THEN (SELECT p.name FROM runs r
            JOIN processors s ON s.processor = r.processor
            JOIN pipelines p ON p.pipeline = s.pipeline WHERE r.run_id = :subject) END),
    {{now}}, {{now}})
ON CONFLICT (dedupe_key) WHERE state <> 'resolved' DO UPDATE SET times = alerts.times + 1,
    last_at = excluded.last_at, message = excluded.message, detail = excluded.detail,
    severity = excluded.severity
RETURNING alert_id, times;

-- name: alert_detail
-- The detail of an open alert by its key, locked.
-- scope: system (alerts name their customer)
SELECT detail FROM alerts WHERE dedupe_key = :dedupe_key AND state <> 'resolved'
{{pg:FOR NO KEY UPDATE}};

-- name: alert_resolve
-- Resolve an open alert by its key.
-- scope: system (alerts name their customer)
UPDATE alerts SET state = 'resolved', closed_at = {{now}}, closed_by = :actor
WHERE dedupe_key = :dedupe_key AND state <> 'resolved' RETURNING alert_id;

-- name: alert_resolve_healthy
-- Resolve alerts about failing configs that have succeeded since, and about misconfigured consumers
-- that have reported nothing for an hour: a message that they cannot handle is delivered again
-- sooner.
-- scope: system (alerts name their customer)
UPDATE alerts SET state = 'resolved', closed_at = {{now}}, closed_by = 'penstock'
WHERE state <> 'resolved' AND ((rule = 'config_failing' AND EXISTS (
    SELECT 1 FROM config_health h
    WHERE h.config_id = alerts.subject AND h.consecutive_failures = 0))
    OR (rule = 'consumer_misconfigured' AND last_at < {{now}} - 3600000000));

-- name: alert_rows
-- Alerts by id, for the messages about them.
-- scope: system (outbox publisher)
SELECT {{alert_columns}}
FROM alerts a LEFT JOIN customers c ON c.customer = a.customer WHERE a.alert_id {{any ids}};

-- name: alert_resolve_quiet
-- Resolve alerts of a rule that have not recurred for a given time.
-- scope: system (alerts name their customer)
UPDATE alerts SET state = 'resolved', closed_at = {{now}}, closed_by = 'penstock'
WHERE rule = :rule AND state <> 'resolved' AND last_at <= {{now}} - :quiet_us;

-- name: alert_list
-- Alerts, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{alert_columns}}
FROM alerts a LEFT JOIN customers c ON c.customer = a.customer
WHERE (CAST(:state AS text) IS NULL OR :state = CASE
        WHEN a.state = 'open' AND a.silence IS NOT NULL THEN 'silenced' ELSE a.state END)
    AND (CAST(:customer AS bigint) IS NULL OR a.customer = :customer)
    AND (CAST(:severity AS text) IS NULL OR a.severity = :severity)
    AND (CAST(:rule AS text) IS NULL OR a.rule = :rule)
    AND (CAST(:pipeline AS text) IS NULL OR a.pipeline = :pipeline)
    AND a.opened_at >= :since AND a.alert_id < :before
ORDER BY a.alert_id DESC LIMIT :limit;

-- name: request_put
-- Store an idempotency key; no row means that it was used before.
-- scope: system (the scope names the caller)
INSERT INTO requests (scope, key, body_hash, response, created_at, expires_at)
VALUES (:scope, :key, :body_hash, NULL, {{now}}, {{now}} + :ttl_us)
ON CONFLICT (scope, key) DO NOTHING RETURNING key;

-- name: request_finish
-- Store the response for a repeated request.
-- scope: system (the scope names the caller)
UPDATE requests SET response = :response WHERE scope = :scope AND key = :key;

-- name: request_get
-- Body hash and response of the request with this key.
-- scope: system (the scope names the caller)
SELECT body_hash, response FROM requests WHERE scope = :scope AND key = :key;

-- fragment: listed_columns [postgres]
j.cluster, j.xid::text, j.seq, j.at, j.kind, j.subject, c.customer_id, j.action, j.actor,
    j.from_state, j.to_state, j.why, j.detail

-- fragment: listed_columns [sqlite]
j.cluster, '0', j.seq, j.at, j.kind, j.subject, c.customer_id, j.action, j.actor, j.from_state,
    j.to_state, j.why, j.detail

-- fragment: before_position [postgres]
(CAST(:cluster AS integer) IS NULL OR j.cluster = :cluster) AND (j.xid, j.seq) < (CAST(:xid AS text)::xid8, CAST(:seq AS bigint))

-- fragment: before_position [sqlite]
(:cluster IS NULL OR j.cluster = :cluster) AND :xid IS NOT NULL AND j.seq < :seq

-- name: journal_window
-- The position after the next entries, newest first; no row if fewer are left. It bounds how many
-- entries a filter reads.
-- scope: system (positions only)
SELECT {{pg:j.xid::text}}{{lite:'0'}}, j.seq FROM journal j WHERE {{before_position}}
ORDER BY {{pg:j.xid DESC, }}j.seq DESC LIMIT 1 OFFSET :window;

-- name: journal_list
-- The entries between two positions that match, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{listed_columns}}
FROM journal j LEFT JOIN customers c ON c.customer = j.customer
WHERE {{before_position}}
    AND {{pg:(j.xid, j.seq) >= (CAST(:until_xid AS text)::xid8, CAST(:until_seq AS bigint))}}{{lite:j.seq >= :until_seq AND :until_xid IS NOT NULL}}
    AND j.kind <> 'audit'
    AND (CAST(:kind AS text) IS NULL OR j.kind = :kind)
    AND (CAST(:action AS text) IS NULL OR j.action = :action)
    AND (CAST(:actor AS text) IS NULL OR j.actor = :actor)
    AND (CAST(:customer AS bigint) IS NULL OR j.customer = :customer)
    AND (NOT :is_notable OR CASE j.kind
        WHEN 'run' THEN j.action <> 'created' AND coalesce(j.to_state, '') <> 'COMPLETED'
        WHEN 'flow' THEN j.action <> 'decided' OR coalesce(j.from_state, '') <> j.to_state
        ELSE TRUE END)
ORDER BY {{pg:j.xid DESC, }}j.seq DESC LIMIT :limit;

-- name: journal_names
-- Pipelines and processors of runs, live or ended.
-- scope: system (the caller may see the entries)
SELECT r.run_id, l.name, p.name FROM runs r JOIN processors p ON p.processor = r.processor
    JOIN pipelines l ON l.pipeline = p.pipeline WHERE r.run_id {{any ids}}
UNION ALL
SELECT h.run_id, l.name, p.name FROM history h JOIN processors p ON p.processor = h.processor
    JOIN pipelines l ON l.pipeline = p.pipeline WHERE h.run_id {{any ids}};

-- name: kept_set
-- Store how long records are kept, if it has changed.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE counters.value <> excluded.value;
