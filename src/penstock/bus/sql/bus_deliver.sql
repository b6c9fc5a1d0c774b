-- Deliveries: lease, extend, settle, nack, sweep. The hot path of the bus.

-- fragment: is_leased
-- A leased delivery: the head of its key, or one that follows its head in the same run.
(deliveries.state = 1 OR deliveries.state = 3 AND deliveries.until_at IS NOT NULL)

-- fragment: d_is_leased
(d.state = 1 OR d.state = 3 AND d.until_at IS NOT NULL)

-- fragment: leased_columns
d.message_id, d.epoch, d.attempt, d.until_at, d.round, d.replays, d.copy_id, d.published_at

-- name: bus_pull [postgres]
-- Lease the next ready deliveries of a subscription, oldest first, incrementing attempt and epoch.
-- Rows are found by an array of ids and messages by their key, so that no plan scans the whole
-- backlog.
-- scope: system (the caller has checked the subscription's customer)
WITH picked AS MATERIALIZED (
    SELECT message_id FROM deliveries WHERE subscription = :subscription AND state = 0
    ORDER BY message_id LIMIT :n FOR UPDATE SKIP LOCKED
), d AS MATERIALIZED (
    UPDATE deliveries u SET state = 1, attempt = u.attempt + 1, epoch = u.epoch + 1,
        until_at = {{now}} + :ack_deadline_us, leased_at = {{now}}, holder = :holder
    WHERE u.subscription = :subscription
        AND u.message_id = ANY(ARRAY(SELECT message_id FROM picked))
    RETURNING u.*
), summed AS (
    INSERT INTO delivery_sums (subscription, customer, hour_at, delivered)
    SELECT :subscription, :customer, {{now}} - {{now}} % 3600000000, count(*) FROM d
    HAVING count(*) > 0
)
SELECT {{leased_columns}}, m.data, m.attributes, m.ordering_key
FROM d LEFT JOIN LATERAL (
    SELECT c.data, c.attributes, c.ordering_key FROM messages c
    WHERE c.message_id = d.message_id AND c.published_at = d.published_at LIMIT 1) AS m ON TRUE
ORDER BY d.message_id;

-- name: bus_pull [sqlite]
-- differs because SQLite has no data-modifying CTEs: the picked ids are staged in a temporary
-- table.
-- scope: system (the caller has checked the subscription's customer)
CREATE TEMP TABLE IF NOT EXISTS leased (message_id integer PRIMARY KEY);
DELETE FROM temp.leased;
INSERT INTO temp.leased
SELECT message_id FROM deliveries WHERE subscription = :subscription AND state = 0
ORDER BY message_id LIMIT :n;
UPDATE deliveries SET state = 1, attempt = attempt + 1, epoch = epoch + 1,
    until_at = {{now}} + :ack_deadline_us, leased_at = {{now}}, holder = :holder
WHERE subscription = :subscription AND message_id IN (SELECT message_id FROM temp.leased);
INSERT INTO delivery_sums (subscription, customer, hour_at, delivered)
SELECT :subscription, :customer, {{now}} - {{now}} % 3600000000, count(*) FROM temp.leased
HAVING count(*) > 0;
SELECT {{leased_columns}}, m.data, m.attributes, m.ordering_key
FROM temp.leased h CROSS JOIN deliveries d ON d.subscription = :subscription
        AND d.message_id = h.message_id
    LEFT JOIN messages m ON m.message_id = d.message_id
ORDER BY h.message_id;

-- name: bus_ready_sizes
-- Sizes of the next ready messages, to bound what a pull reads into memory.
-- scope: system (the caller has checked the subscription's customer)
SELECT (SELECT length(m.data) FROM messages m WHERE m.message_id = coalesce(d.copy_id, d.message_id)
    AND (d.copy_id IS NOT NULL OR m.published_at = d.published_at) LIMIT 1)
FROM deliveries d WHERE d.subscription = :subscription AND d.state = 0
ORDER BY d.message_id LIMIT :n;

-- name: bus_acked_before
-- Deliveries that were acked under the given epochs.
-- scope: system (the caller has checked the subscription's customer)
-- batch: message_id bigint, epoch bigint
SELECT s.message_id, s.epoch FROM {{batch}} JOIN settled s ON s.message_id = batch.message_id
    AND s.subscription = :subscription AND s.epoch = batch.epoch
WHERE s.outcome = 'acked';

-- name: bus_ready_heads
-- Ordering keys of the next ready deliveries, to be locked before a run of them is leased.
-- scope: system (the caller has checked the subscription's customer)
SELECT ordering_key FROM deliveries WHERE subscription = :subscription AND state = 0
ORDER BY message_id LIMIT :n;

-- fragment: run_columns
-- Deliveries behind head `k`. A run ends before the first one that must not follow its head now:
-- it is delayed, or was published before the head (a replay), or is leased already.
b.message_id, row_number() OVER w AS place,
    max(CASE WHEN b.until_at IS NULL AND b.due_at <= {{now}} AND b.message_id > b.head_id
        THEN 0 ELSE 1 END) OVER w AS is_over

-- name: bus_pull_run [postgres]
-- Lease the deliveries that follow leased heads of ordering keys, in order, the same number for
-- each key. Their state stays 3 and a deadline marks them as leased, so that each key keeps one
-- head.
-- scope: system (the caller holds the keys' locks)
-- batch: ordering_key text, message_id bigint
WITH following AS MATERIALIZED (
    SELECT {{run_columns}} FROM (
        SELECT f.message_id, f.until_at, f.due_at, k.ordering_key, k.message_id AS head_id
        FROM (SELECT batch.ordering_key, batch.message_id FROM {{batch}}) AS k
        CROSS JOIN LATERAL (
            SELECT o.message_id, o.until_at, o.due_at FROM deliveries o
            WHERE o.subscription = :subscription AND o.ordering_key = k.ordering_key
                AND o.state = 3 ORDER BY o.message_id LIMIT :each) AS f) AS b
    WINDOW w AS (PARTITION BY b.ordering_key ORDER BY b.message_id)
), picked AS MATERIALIZED (
    SELECT message_id FROM following WHERE is_over = 0 ORDER BY place, message_id LIMIT :n
), d AS MATERIALIZED (
    UPDATE deliveries u SET attempt = u.attempt + 1, epoch = u.epoch + 1,
        until_at = {{now}} + :ack_deadline_us, leased_at = {{now}}, holder = :holder
    WHERE u.subscription = :subscription
        AND u.message_id = ANY(ARRAY(SELECT message_id FROM picked))
    RETURNING u.*
), summed AS (
    INSERT INTO delivery_sums (subscription, customer, hour_at, delivered)
    SELECT :subscription, :customer, {{now}} - {{now}} % 3600000000, count(*) FROM d
    HAVING count(*) > 0
)
SELECT {{leased_columns}}, m.data, m.attributes, m.ordering_key
FROM d LEFT JOIN LATERAL (
    SELECT c.data, c.attributes, c.ordering_key FROM messages c
    WHERE c.message_id = d.message_id AND c.published_at = d.published_at LIMIT 1) AS m ON TRUE;

-- name: bus_pull_run [sqlite]
-- differs because SQLite has no data-modifying CTEs and no LATERAL: the picked ids are staged in a
-- temporary table.
-- scope: system (the caller holds the keys' locks)
-- batch: ordering_key text, message_id bigint
CREATE TEMP TABLE IF NOT EXISTS leased (message_id integer PRIMARY KEY);
DELETE FROM temp.leased;
INSERT INTO temp.leased
SELECT message_id FROM (
    SELECT {{run_columns}} FROM (
        SELECT f.message_id, f.until_at, f.due_at, k.ordering_key, k.message_id AS head_id
        FROM (SELECT batch.ordering_key, batch.message_id FROM {{batch}}) AS k
        CROSS JOIN deliveries f ON f.subscription = :subscription AND f.message_id IN (
            SELECT o.message_id FROM deliveries o
            WHERE o.subscription = :subscription AND o.ordering_key = k.ordering_key
                AND o.state = 3 ORDER BY o.message_id LIMIT :each)) AS b
    WINDOW w AS (PARTITION BY b.ordering_key ORDER BY b.message_id))
WHERE is_over = 0 ORDER BY place, message_id LIMIT :n;
UPDATE deliveries SET attempt = attempt + 1, epoch = epoch + 1,
    until_at = {{now}} + :ack_deadline_us, leased_at = {{now}}, holder = :holder
WHERE subscription = :subscription AND message_id IN (SELECT message_id FROM temp.leased);
INSERT INTO delivery_sums (subscription, customer, hour_at, delivered)
SELECT :subscription, :customer, {{now}} - {{now}} % 3600000000, count(*) FROM temp.leased
HAVING count(*) > 0;
SELECT {{leased_columns}}, m.data, m.attributes, m.ordering_key
FROM temp.leased h CROSS JOIN deliveries d ON d.subscription = :subscription
        AND d.message_id = h.message_id
    LEFT JOIN messages m ON m.message_id = d.message_id;

-- fragment: later_of_run
-- The leased deliveries of a run after message `k`, if the next one is leased.
(SELECT l.message_id FROM deliveries l WHERE l.subscription = :subscription
    AND l.ordering_key = k.ordering_key AND l.state = 3 AND l.message_id > k.message_id
    AND (SELECT n.until_at FROM deliveries n WHERE n.subscription = :subscription
        AND n.ordering_key = k.ordering_key AND n.state = 3 AND n.message_id > k.message_id
        ORDER BY n.message_id LIMIT 1) IS NOT NULL
    ORDER BY l.message_id LIMIT :run_max)

-- name: bus_return_run [postgres]
-- Return the rest of runs after given messages: no longer leased, and no attempt is counted.
-- scope: system (the caller holds the keys' locks)
-- batch: ordering_key text, message_id bigint
UPDATE deliveries SET until_at = NULL, holder = NULL, attempt = attempt - 1
WHERE subscription = :subscription AND state = 3 AND until_at IS NOT NULL
    AND NOT (message_id {{any kept}}) AND message_id = ANY(ARRAY(
        SELECT r.message_id FROM (SELECT batch.ordering_key, batch.message_id FROM {{batch}}) AS k
        CROSS JOIN LATERAL {{later_of_run}} AS r));

-- name: bus_return_run [sqlite]
-- differs because SQLite has no arrays and no LATERAL.
-- scope: system (the caller holds the keys' locks)
-- batch: ordering_key text, message_id bigint
UPDATE deliveries SET until_at = NULL, holder = NULL, attempt = attempt - 1
WHERE subscription = :subscription AND state = 3 AND until_at IS NOT NULL
    AND NOT (message_id {{any kept}}) AND message_id IN (
        SELECT f.message_id
        FROM (SELECT batch.ordering_key, batch.message_id FROM {{batch}}) AS k
        CROSS JOIN deliveries f ON f.subscription = :subscription
            AND f.message_id IN {{later_of_run}});

-- name: bus_contents
-- Contents of messages by id; the publish time is not needed.
-- scope: system (the caller has checked the messages' customer)
SELECT m.message_id, m.data, m.attributes, m.ordering_key FROM messages m
WHERE m.message_id {{any ids}};

-- name: bus_headers
-- Messages by id, without their content.
-- scope: system (the caller has checked the messages' customer)
SELECT m.message_id, m.topic, m.attributes, m.published_at, m.expires_at, m.ordering_key FROM messages m
WHERE m.message_id {{any ids}};

-- name: bus_keys_of
-- Ordering keys of deliveries, to be locked before the deliveries are changed.
-- scope: system (the caller has checked the subscription's customer)
SELECT DISTINCT ordering_key FROM deliveries
WHERE subscription = :subscription AND message_id {{any ids}} AND ordering_key IS NOT NULL;

-- fragment: sums_of_settled
INSERT INTO delivery_sums (subscription, customer, hour_at, acked, dead_lettered, expired, purged)
SELECT :subscription, :customer, {{now}} - {{now}} % 3600000000,
    sum(CASE WHEN :outcome = 'acked' THEN 1 ELSE 0 END),
    sum(CASE WHEN :outcome = 'dead_lettered' THEN 1 ELSE 0 END),
    sum(CASE WHEN :outcome = 'expired' THEN 1 ELSE 0 END),
    sum(CASE WHEN :outcome = 'purged' THEN 1 ELSE 0 END)

-- name: bus_settle [postgres]
-- The only statement that ends deliveries. An ack requires the current epoch and a lease; other
-- outcomes end the locked row in any state.
-- scope: system (by epoch; the caller has checked the subscription's customer)
-- batch: message_id bigint, epoch bigint, handled_as text, handled_us bigint
WITH x AS MATERIALIZED (
    SELECT batch.message_id, batch.epoch, batch.handled_as, batch.handled_us FROM {{batch}}
), gone AS (
    DELETE FROM deliveries d USING x
    WHERE d.subscription = :subscription AND d.message_id = x.message_id
        AND d.message_id = ANY(:b_message_id::bigint[]) AND d.epoch = x.epoch
        AND ({{d_is_leased}} OR CAST(:outcome AS text) <> 'acked')
    RETURNING d.message_id, d.round, d.epoch, d.attempt, d.replays, d.published_at, d.ordering_key,
        d.leased_at, d.holder, d.born_at, x.handled_as, x.handled_us
), kept AS (
    INSERT INTO settled (subscription, message_id, customer, round, epoch, attempts, replays,
        outcome, published_at, at, started_at, holder, born_at, service, revision, handled_as,
        handled_us)
    SELECT :subscription, g.message_id, :customer, g.round, g.epoch, g.attempt, g.replays,
        CAST(:outcome AS text), g.published_at, {{now}}, g.leased_at, g.holder, g.born_at,
        CAST(:service AS text), CAST(:revision AS text), g.handled_as, g.handled_us
    FROM gone g
), summed AS (
    {{sums_of_settled}} FROM gone HAVING count(*) > 0
)
SELECT g.message_id, g.epoch, g.ordering_key FROM gone g;

-- name: bus_settle [sqlite]
-- differs because SQLite has no data-modifying CTEs: ended rows are staged in a temporary table.
-- scope: system (by epoch; the caller has checked the subscription's customer)
-- batch: message_id bigint, epoch bigint, handled_as text, handled_us bigint
CREATE TEMP TABLE IF NOT EXISTS ending (
    message_id integer PRIMARY KEY, round integer, epoch integer, attempt integer, replays integer,
    published_at integer, ordering_key text, leased_at integer, holder text,
    born_at integer, handled_as text, handled_us integer);
DELETE FROM temp.ending;
INSERT OR IGNORE INTO temp.ending
SELECT d.message_id, d.round, d.epoch, d.attempt, d.replays, d.published_at, d.ordering_key,
    d.leased_at, d.holder, d.born_at, batch.handled_as, batch.handled_us
FROM {{batch}} CROSS JOIN deliveries d ON d.subscription = :subscription
    AND d.message_id = batch.message_id
WHERE d.epoch = batch.epoch AND ({{d_is_leased}} OR :outcome <> 'acked');
DELETE FROM deliveries WHERE subscription = :subscription
    AND message_id IN (SELECT message_id FROM temp.ending);
INSERT INTO settled (subscription, message_id, customer, round, epoch, attempts, replays, outcome,
    published_at, at, started_at, holder, born_at, service, revision, handled_as, handled_us)
SELECT :subscription, g.message_id, :customer, g.round, g.epoch, g.attempt, g.replays, :outcome,
    g.published_at, {{now}}, g.leased_at, g.holder, g.born_at, :service, :revision, g.handled_as,
    g.handled_us
FROM temp.ending g;
{{sums_of_settled}} FROM temp.ending HAVING count(*) > 0;
SELECT g.message_id, g.epoch, g.ordering_key FROM temp.ending g;

-- name: bus_extend
-- Extend the deadlines of leased deliveries whose epoch is current.
-- scope: system (by epoch; the caller has checked the subscription's customer)
-- batch: message_id bigint, epoch bigint
UPDATE deliveries SET until_at = {{now}} + :extend_us
FROM {{batch}}
WHERE deliveries.subscription = :subscription AND deliveries.message_id = batch.message_id
    {{pg:AND deliveries.message_id = ANY(:b_message_id::bigint[])}}
    AND deliveries.epoch = batch.epoch AND {{is_leased}}
RETURNING deliveries.message_id, deliveries.epoch;

-- name: bus_lock_leased
-- Lock leased deliveries whose epoch is current and, for the sweeper, whose deadline has passed.
-- scope: system (by epoch; the caller has checked the subscription's customer)
-- batch: message_id bigint, epoch bigint
SELECT d.message_id, d.epoch, d.round, d.attempt, d.replays, d.copy_id, d.published_at,
    d.ordering_key, d.leased_at, d.holder
FROM {{batch}} JOIN deliveries d ON d.subscription = :subscription
    AND d.message_id = batch.message_id
    {{pg:AND d.message_id = ANY(:b_message_id::bigint[])}}
WHERE d.epoch = batch.epoch AND {{d_is_leased}}
    AND (CAST(:lapsed AS boolean) IS NOT TRUE OR d.until_at <= {{now}})
ORDER BY d.message_id {{pg:FOR UPDATE OF d}};

-- name: bus_delay
-- Delay leased deliveries before their next attempt; one that follows its head stays behind it.
-- scope: system (rows the transaction holds)
-- batch: message_id bigint, epoch bigint, delay_us bigint, last_error text
UPDATE deliveries SET state = CASE WHEN deliveries.state = 3 THEN 3 ELSE 2 END,
    due_at = {{now}} + batch.delay_us, until_at = NULL, holder = NULL, last_error = batch.last_error
FROM {{batch}}
WHERE deliveries.subscription = :subscription AND deliveries.message_id = batch.message_id
    {{pg:AND deliveries.message_id = ANY(:b_message_id::bigint[])}}
    AND deliveries.epoch = batch.epoch AND {{is_leased}};

-- name: bus_failures_put
-- Record attempts of deliveries that did not end with an ack.
-- scope: system (the parameters name the customer)
-- batch: message_id bigint, round bigint, attempt bigint, action text, error_type text, error text,
--   holder text, started_at bigint, handled_as text, handled_us bigint
INSERT INTO delivery_failures (subscription, message_id, customer, round, attempt, action,
    error_type, error, holder, started_at, at, service, revision, handled_as, handled_us)
SELECT :subscription, batch.message_id, :customer, batch.round, batch.attempt, batch.action,
    batch.error_type, batch.error, batch.holder, batch.started_at, {{now}}, CAST(:service AS text),
    CAST(:revision AS text), batch.handled_as, batch.handled_us
FROM {{batch}} WHERE TRUE ORDER BY ord;

-- name: bus_release
-- Make leased deliveries that were never tried ready again and undo the attempt; the epoch stays
-- used.
-- scope: system (rows the transaction holds)
-- batch: message_id bigint, epoch bigint
UPDATE deliveries SET state = CASE WHEN deliveries.state = 3 THEN 3 ELSE 0 END,
    attempt = deliveries.attempt - 1, until_at = NULL, holder = NULL
FROM {{batch}}
WHERE deliveries.subscription = :subscription AND deliveries.message_id = batch.message_id
    {{pg:AND deliveries.message_id = ANY(:b_message_id::bigint[])}}
    AND deliveries.epoch = batch.epoch AND {{is_leased}};

-- name: bus_lapsed
-- Deliveries past their deadline, read without a lock; the caller locks them by epoch.
-- scope: system (sweep; a subscription narrows it)
SELECT subscription, message_id, epoch FROM deliveries
WHERE state = 1 AND until_at <= {{now}}
    AND (CAST(:subscription AS bigint) IS NULL OR subscription = :subscription)
ORDER BY subscription, message_id LIMIT :n;

-- name: bus_due [postgres]
-- Make due delayed deliveries ready.
-- scope: system (sweep)
UPDATE deliveries SET state = 0 WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM deliveries WHERE state = 2 AND due_at <= {{now}}
    ORDER BY due_at LIMIT :n FOR UPDATE SKIP LOCKED))
RETURNING subscription;

-- name: bus_due [sqlite]
-- differs because SQLite identifies rows by rowid, not ctid.
-- scope: system (sweep)
UPDATE deliveries SET state = 0 WHERE rowid IN (
    SELECT rowid FROM deliveries WHERE state = 2 AND due_at <= {{now}}
    ORDER BY due_at LIMIT :n)
RETURNING subscription;

-- name: bus_due_of [postgres]
-- Make due delayed deliveries of one subscription ready.
-- scope: system (the caller has checked the subscription's customer)
UPDATE deliveries SET state = 0 WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM deliveries WHERE subscription = :subscription AND state = 2
        AND due_at <= {{now}} ORDER BY due_at LIMIT :n FOR UPDATE SKIP LOCKED));

-- name: bus_due_of [sqlite]
-- differs because SQLite identifies rows by rowid, not ctid.
-- scope: system (the caller has checked the subscription's customer)
UPDATE deliveries SET state = 0 WHERE rowid IN (
    SELECT rowid FROM deliveries WHERE subscription = :subscription AND state = 2
        AND due_at <= {{now}} ORDER BY due_at LIMIT :n);

-- name: bus_hasten [postgres]
-- Make the deliveries of a subscription that wait after a failure ready, earliest due first.
-- scope: system (the caller has checked the subscription's customer)
UPDATE deliveries SET state = 0, due_at = {{now}} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM deliveries WHERE subscription = :subscription AND state = 2 AND attempt > 0
    ORDER BY due_at LIMIT :n FOR UPDATE SKIP LOCKED));

-- name: bus_hasten [sqlite]
-- differs because SQLite identifies rows by rowid, not ctid.
-- scope: system (the caller has checked the subscription's customer)
UPDATE deliveries SET state = 0, due_at = {{now}} WHERE rowid IN (
    SELECT rowid FROM deliveries WHERE subscription = :subscription AND state = 2 AND attempt > 0
    ORDER BY due_at LIMIT :n);

-- fragment: next_of_key
-- The first delivery that waits behind key `k`.
(SELECT b.message_id FROM deliveries b WHERE b.subscription = :subscription
    AND b.ordering_key = k.ordering_key AND b.state = 3 ORDER BY b.message_id LIMIT 1)

-- fragment: head_of_key
(SELECT h.message_id FROM deliveries h WHERE h.subscription = :subscription
    AND h.ordering_key = k.ordering_key AND h.ordering_key IS NOT NULL AND h.state <> 3 LIMIT 1)

-- fragment: as_head
state = CASE WHEN until_at IS NOT NULL THEN 1 WHEN due_at > {{now}} THEN 2 ELSE 0 END,
    due_at = greatest(due_at, {{now}}),
    until_at = CASE WHEN until_at IS NOT NULL
        THEN greatest(until_at, {{now}} + :ack_deadline_us) END

-- name: bus_move_up [postgres]
-- Make the next delivery of each key its head if no delivery of that key precedes it: ready, or
-- still leased if it is the rest of a run, with a full deadline from now.
-- scope: system (the caller holds the keys' locks)
-- batch: ordering_key text
UPDATE deliveries SET {{as_head}}
WHERE subscription = :subscription AND state = 3 AND message_id = ANY(ARRAY(
    SELECT {{next_of_key}} FROM (SELECT DISTINCT batch.ordering_key FROM {{batch}}) AS k
    WHERE {{head_of_key}} IS NULL))
RETURNING message_id;

-- name: bus_move_up [sqlite]
-- differs because SQLite has no arrays.
-- scope: system (the caller holds the keys' locks)
-- batch: ordering_key text
UPDATE deliveries SET {{as_head}}
WHERE subscription = :subscription AND state = 3 AND message_id IN (
    SELECT {{next_of_key}} FROM (SELECT DISTINCT batch.ordering_key FROM {{batch}}) AS k
    WHERE {{head_of_key}} IS NULL)
RETURNING message_id;
