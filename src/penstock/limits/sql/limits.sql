-- Limits: shared capacity and rate. The limit's row is the lock; used capacity is the sum of
-- leases.

-- fragment: limit_columns
-- A limit, in the order of `rows.Limit`.
l.limit_id, l.customer, l.name, l.capacity, l.is_adaptive, l.floor, l.learned, l.learned_at,
l.lease_us, l.grace_us, l.queue_max, l.rate, l.burst, l.level, l.level_at, l.quota_errors,
l.last_quota_at, l.is_declared, l.version, l.created_at, l.updated_at, l.updated_by, l.minute,
l.taken, l.taken_before

-- fragment: lease_columns
-- A held slot, in the order of `rows.Lease`.
lease_id, limit_id, weight, token, broker, holder, request, run_id, is_taken,
lease_us, asked_at, since_at, until_at

-- fragment: released_columns
-- Columns of a released lease, in the order of `grant._Released`.
weight, token, since_at

-- fragment: ticket_columns
-- A waiting request, in the order of `rows.Ticket`.
ticket, weight, broker, holder, request, run_id, lease_us, asked_at, until_at, kept_until

-- name: limit_get
-- A limit by name.
SELECT {{limit_columns}} FROM limits l WHERE l.customer = :customer AND l.name = :name;

-- name: limit_add
-- Insert a limit; no row if it exists.
-- scope: system (customer is a column of the new row)
INSERT INTO limits (customer, name, capacity, is_adaptive, floor, lease_us, grace_us, queue_max,
    rate, burst, is_declared, created_at, updated_at, updated_by)
VALUES (:customer, :name, :capacity, :is_adaptive, :floor, :lease_us, :grace_us, :queue_max,
    :rate, :burst, :is_declared, {{now}}, {{now}}, :actor)
ON CONFLICT (customer, name) DO NOTHING
RETURNING limit_id;

-- name: limit_alter
-- Change a limit's settings, under its lock; the learned capacity is kept if it still fits.
-- scope: system (the caller has looked it up by customer and holds its lock)
UPDATE limits SET capacity = :capacity, is_adaptive = :is_adaptive, floor = :floor,
    lease_us = :lease_us, grace_us = :grace_us, queue_max = :queue_max, rate = :rate,
    burst = :burst, learned = :learned, level = :level, level_at = :level_at, is_declared = TRUE,
    version = version + 1, updated_at = {{now}}, updated_by = :actor
WHERE limit_id = :limit_id;

-- name: limit_lock
-- A limit, locked. Capacity is read in a statement after this one.
-- scope: system (a limit's slots are shared by all its users)
SELECT {{limit_columns}} FROM limits l WHERE l.limit_id = :limit_id {{pg:FOR NO KEY UPDATE}};

-- name: limit_usage
-- Current usage of a limit, and whether requests or runs wait. Must run after the lock, in its own
-- statement.
-- scope: system (capacity needs the leases of all customers)
SELECT coalesce(sum(e.weight), 0), min(e.until_at), {{now}},
    EXISTS (SELECT 1 FROM run_limits r WHERE r.limit_id = :limit_id AND r.is_waiting),
    EXISTS (SELECT 1 FROM limit_tickets t WHERE t.limit_id = :limit_id)
FROM limit_leases e WHERE e.limit_id = :limit_id;

-- name: limit_get_with_usage
-- A limit with its usage in one read, where the transaction is the lock and there is one writer.
-- scope: system (capacity needs the leases of all customers)
SELECT h.held, h.least, {{now}},
    EXISTS (SELECT 1 FROM run_limits r WHERE r.limit_id = :limit_id AND r.is_waiting),
    EXISTS (SELECT 1 FROM limit_tickets t WHERE t.limit_id = :limit_id),
    {{limit_columns}}
FROM limits l, (SELECT coalesce(sum(e.weight), 0) AS held, min(e.until_at) AS least
    FROM limit_leases e WHERE e.limit_id = :limit_id) AS h
WHERE l.limit_id = :limit_id;

-- name: limit_tickets_next
-- The next tickets of a limit's queue; before the first page, kept ones whose run is to be checked.
-- Two reads, because a range of either index has no other kept tickets.
-- scope: system (the queue is shared by all customers)
SELECT * FROM (SELECT {{ticket_columns}} FROM limit_tickets
    WHERE limit_id = :limit_id AND kept_until IS NOT NULL AND kept_until <= {{now}} AND :after = 0
    ORDER BY kept_until LIMIT :n) AS k
UNION ALL
SELECT * FROM (SELECT {{ticket_columns}} FROM limit_tickets
    WHERE limit_id = :limit_id AND kept_until IS NULL AND ticket > :after
    ORDER BY ticket LIMIT :n) AS w;

-- name: limit_grant_one [postgres]
-- Insert a lease for a request that did not have to wait.
-- scope: system (under the limit's lock)
INSERT INTO limit_leases (limit_id, customer, weight, token, broker, holder, request, run_id,
    is_taken, lease_us, asked_at, since_at, until_at)
VALUES (:limit_id, :customer, :weight, nextval('token_seq'), :broker, :holder, :request, :run_id,
    TRUE, :lease_us, coalesce(:asked_at, {{now}}), {{now}} + :wait_us,
    {{now}} + :wait_us + :lease_us)
RETURNING {{lease_columns}};

-- name: limit_grant_one [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (under the limit's lock)
UPDATE counters SET value = value + 1 WHERE name = 'token';
INSERT INTO limit_leases (limit_id, customer, weight, token, broker, holder, request, run_id,
    is_taken, lease_us, asked_at, since_at, until_at)
VALUES (:limit_id, :customer, :weight, (SELECT value FROM counters WHERE name = 'token'), :broker,
    :holder, :request, :run_id, TRUE, :lease_us, coalesce(:asked_at, {{now}}), {{now}} + :wait_us,
    {{now}} + :wait_us + :lease_us)
RETURNING {{lease_columns}};

-- name: limit_grant_many [postgres]
-- Insert leases for granted requests and delete their tickets.
-- scope: system (under the limit's lock)
-- batch: ticket bigint, limit_id bigint, customer bigint, weight bigint, broker text, holder text,
--   request text, run_id bigint, is_taken boolean, asked_at bigint, lease_us bigint,
--   hold_us bigint, wait_us bigint
WITH used AS (DELETE FROM limit_tickets WHERE ticket = ANY(:b_ticket::bigint[]))
INSERT INTO limit_leases (limit_id, customer, weight, token, broker, holder, request, run_id,
    is_taken, lease_us, asked_at, since_at, until_at)
SELECT batch.limit_id, batch.customer, batch.weight, nextval('token_seq'), batch.broker,
    batch.holder, batch.request, batch.run_id, batch.is_taken,
    batch.lease_us, coalesce(batch.asked_at, {{now}}), {{now}} + batch.wait_us,
    {{now}} + batch.wait_us + batch.hold_us
FROM {{batch}} ORDER BY batch.ord
RETURNING {{lease_columns}};

-- name: limit_grant_many [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (under the limit's lock)
-- batch: ticket bigint, limit_id bigint, customer bigint, weight bigint, broker text, holder text,
--   request text, run_id bigint, is_taken boolean, asked_at bigint, lease_us bigint,
--   hold_us bigint, wait_us bigint
DELETE FROM limit_tickets WHERE ticket IN (SELECT batch.ticket FROM {{batch}});
UPDATE counters SET value = value + (SELECT count(*) FROM {{batch}}) WHERE name = 'token';
INSERT INTO limit_leases (limit_id, customer, weight, token, broker, holder, request, run_id,
    is_taken, lease_us, asked_at, since_at, until_at)
SELECT batch.limit_id, batch.customer, batch.weight,
    (SELECT value FROM counters WHERE name = 'token') - (SELECT count(*) FROM {{batch}})
        + batch.ord, batch.broker, batch.holder, batch.request, batch.run_id, batch.is_taken,
    batch.lease_us, coalesce(batch.asked_at, {{now}}), {{now}} + batch.wait_us,
    {{now}} + batch.wait_us + batch.hold_us
FROM {{batch}} WHERE TRUE ORDER BY batch.ord;
SELECT {{lease_columns}} FROM limit_leases
WHERE (limit_id, request) IN (SELECT batch.limit_id, batch.request FROM {{batch}})
ORDER BY lease_id;

-- name: limit_release_one [postgres]
-- Release one lease; same as the batch below, but planned once.
-- scope: system (by token, known only to the holder)
WITH e AS (DELETE FROM limit_leases
    WHERE lease_id = :lease_id AND token = :token AND limit_id = :limit_id RETURNING *),
recorded AS (INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome,
        asked_at, since_at, at)
    SELECT e.limit_id, e.customer, e.holder, e.run_id, e.token, e.weight,
        CAST(:outcome AS text), e.asked_at, e.since_at, {{now}} FROM e)
SELECT {{released_columns}} FROM e;

-- name: limit_release_one [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (by token, known only to the holder)
INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome, asked_at,
    since_at, at)
SELECT limit_id, customer, holder, run_id, token, weight, :outcome, asked_at, since_at, {{now}}
FROM limit_leases WHERE lease_id = :lease_id AND token = :token AND limit_id = :limit_id;
DELETE FROM limit_leases WHERE lease_id = :lease_id AND token = :token AND limit_id = :limit_id
RETURNING {{released_columns}};

-- name: limit_release_many [postgres]
-- Release leases by (lease, token); a late, repeated or foreign release changes nothing.
-- scope: system (by token, known only to the holder)
-- batch: lease_id bigint, token bigint
WITH e AS (DELETE FROM limit_leases e USING {{batch}}
    WHERE e.lease_id = batch.lease_id AND e.token = batch.token AND e.limit_id = :limit_id
        AND e.lease_id = ANY(:b_lease_id::bigint[])
    RETURNING e.*),
recorded AS (INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome,
        asked_at, since_at, at)
    SELECT e.limit_id, e.customer, e.holder, e.run_id, e.token, e.weight,
        CAST(:outcome AS text), e.asked_at, e.since_at, {{now}} FROM e ORDER BY e.lease_id)
SELECT {{released_columns}} FROM e ORDER BY e.lease_id;

-- name: limit_release_many [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (by token, known only to the holder)
-- batch: lease_id bigint, token bigint
INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome, asked_at,
    since_at, at)
SELECT e.limit_id, e.customer, e.holder, e.run_id, e.token, e.weight, :outcome, e.asked_at,
    e.since_at, {{now}}
FROM {{batch}} JOIN limit_leases e ON e.lease_id = batch.lease_id AND e.token = batch.token
WHERE e.limit_id = :limit_id ORDER BY e.lease_id;
DELETE FROM limit_leases WHERE limit_id = :limit_id
    AND (lease_id, token) IN (SELECT batch.lease_id, batch.token FROM {{batch}})
RETURNING {{released_columns}};

-- name: limit_expired
-- Leases of a limit that expired, including the grace period; to be released under the limit's
-- lock. One granted to a snoozed run that is running again is left until the run has requested it.
-- scope: system (capacity needs the leases of all customers)
SELECT e.lease_id, e.token FROM limit_leases e
WHERE e.limit_id = :limit_id AND e.until_at + :grace_us <= {{now}}
    AND (e.is_taken OR e.broker <> '' OR e.until_at + :running_us <= {{now}} OR NOT EXISTS (
        SELECT 1 FROM runs r WHERE r.run_id = e.run_id AND r.admission = 9))
ORDER BY e.lease_id {{pg:FOR UPDATE}};

-- name: limit_renew_many
-- Renew leases; no row: the lease was lost. Needs no lock on the limit, because a lease ends by
-- being deleted, and a deleted row cannot be renewed.
-- scope: system (by token, known only to the holder)
-- batch: lease_id bigint, token bigint
UPDATE limit_leases
SET until_at = greatest({{now}}, limit_leases.since_at) + limit_leases.lease_us
FROM {{batch}} WHERE limit_leases.lease_id = batch.lease_id AND limit_leases.token = batch.token
    AND limit_leases.lease_us IS NOT NULL
    {{pg:AND limit_leases.lease_id = ANY(:b_lease_id::bigint[])}}
RETURNING limit_leases.lease_id, limit_leases.until_at;

-- name: limit_collect
-- Take over leases that other processes granted to this broker; they now get their full duration.
-- scope: system (a broker serves all code in its process)
UPDATE limit_leases
SET is_taken = TRUE, until_at = greatest({{now}}, since_at) + lease_us
WHERE limit_id = :limit_id AND broker = :broker AND NOT is_taken
RETURNING {{lease_columns}};

-- name: limit_adopt_leases
-- Leases granted to these requests before: the response was lost, or the run was snoozed.
-- scope: system (by request id, known only to the requester)
UPDATE limit_leases SET broker = :broker, is_taken = TRUE,
    until_at = greatest({{now}}, since_at) + lease_us
WHERE limit_id = :limit_id AND request {{any requests}} AND lease_us IS NOT NULL
RETURNING {{lease_columns}};

-- name: limit_adopt_tickets
-- Tickets that these requests got before.
-- scope: system (by request id, known only to the requester)
UPDATE limit_tickets SET broker = :broker, until_at = {{now}} + :ticket_us, kept_until = NULL
WHERE limit_id = :limit_id AND request {{any requests}}
RETURNING {{ticket_columns}};

-- name: ticket_put_many
-- Insert tickets in the given order; numbered under the limit's lock, so that numbers are
-- sequential.
-- scope: system (under the limit's lock)
-- batch: limit_id bigint, customer bigint, weight bigint, broker text, holder text, request text,
--   run_id bigint, lease_us bigint, asked_at bigint, ticket_us bigint
INSERT INTO limit_tickets (limit_id, customer, weight, broker, holder, request, run_id, lease_us,
    asked_at, until_at)
SELECT batch.limit_id, batch.customer, batch.weight, batch.broker, batch.holder, batch.request,
    batch.run_id, batch.lease_us, coalesce(batch.asked_at, {{now}}), {{now}} + batch.ticket_us
FROM {{batch}} WHERE TRUE ORDER BY batch.ord
RETURNING ticket, request, asked_at;

-- name: ticket_count
-- The length of a limit's queue.
-- scope: system (the queue is shared by all customers)
SELECT count(*) FROM limit_tickets WHERE limit_id = :limit_id AND kept_until IS NULL;

-- name: ticket_keep_many
-- Keep the places of snoozed runs that cannot use a slot now.
-- scope: system (under the limit's lock)
-- batch: ticket bigint
UPDATE limit_tickets SET kept_until = {{now}} + :kept_us, until_at = {{now}}
FROM {{batch}} WHERE limit_tickets.ticket = batch.ticket
    {{pg:AND limit_tickets.ticket = ANY(:b_ticket::bigint[])}};

-- name: ticket_delete_many
-- Delete the tickets of requests whose slot is now in use.
-- scope: system (under the limit's lock)
DELETE FROM limit_tickets WHERE limit_id = :limit_id AND request {{any requests}};

-- name: ticket_drop_many
-- Delete tickets that no longer wait, and record them in the history.
-- scope: system (under the limit's lock)
-- batch: limit_id bigint, request text, outcome text
INSERT INTO limit_history (limit_id, customer, holder, run_id, weight, outcome, asked_at, at)
SELECT t.limit_id, t.customer, t.holder, t.run_id, t.weight, batch.outcome, t.asked_at, {{now}}
FROM {{batch}} JOIN limit_tickets t ON t.limit_id = batch.limit_id AND t.request = batch.request
ORDER BY t.ticket;
DELETE FROM limit_tickets WHERE (limit_id, request) IN (
    SELECT batch.limit_id, batch.request FROM {{batch}})
RETURNING request;

-- name: ticket_renew_many
-- Renew a broker's tickets; missing ones were dropped or granted.
-- scope: system (a broker serves all code in its process)
UPDATE limit_tickets SET until_at = {{now}} + :ticket_us
WHERE broker = :broker AND limit_id {{any ids}}
RETURNING request;

-- name: ticket_snooze
-- Keep the ticket of a run that waits without a worker; no broker renews it.
-- scope: system (by request id, known only to the requester)
UPDATE limit_tickets SET broker = '', until_at = {{now}} + :ticket_us
WHERE limit_id = :limit_id AND request = :request
RETURNING run_id;

-- name: limit_run_wake
-- Make snoozed runs whose slot was granted due immediately.
-- scope: system (grants serve all customers)
UPDATE runs SET scheduled_time = {{now}} WHERE run_id {{any ids}} AND admission = 1
RETURNING run_id;

-- name: limit_run_alive
-- Runs that have not ended and are not paused, and whether they can use a grant now: about to start,
-- or running. Locked, so that a run that is being requeued is either visible here or finds its grant.
-- scope: system (grants serve all customers)
SELECT run_id, admission IN (0, 1, 9) FROM runs WHERE run_id {{any ids}} AND admission <> 2
ORDER BY run_id {{pg:FOR NO KEY UPDATE}};

-- name: limit_run_granted
-- Make requeued runs whose slot was granted in the meantime due immediately.
-- scope: system (the caller just released the runs)
UPDATE runs SET scheduled_time = {{now}} WHERE run_id {{any ids}} AND admission = 1
    AND EXISTS (SELECT 1 FROM limit_leases e WHERE e.run_id = runs.run_id
        AND e.lease_us IS NOT NULL AND e.broker = '' AND e.since_at <= {{now}})
RETURNING run_id;

-- name: limit_learn
-- Store the capacity learned from quota errors and successes; under the limit's lock.
-- scope: system (a limit's slots are shared by all its users)
UPDATE limits SET learned = :learned, learned_at = :learned_at WHERE limit_id = :limit_id;

-- name: limit_quota_put
-- Count a quota error.
-- scope: system (a limit's slots are shared by all its users)
UPDATE limits SET quota_errors = quota_errors + 1, last_quota_at = {{now}}
WHERE limit_id = :limit_id RETURNING quota_errors, {{now}};

-- name: quota_retry_get
-- How often a call failed before its run was snoozed, and how long ago it began.
-- scope: system (the caller executes the run)
SELECT tries, {{now}} - since_at FROM quota_retries WHERE run_id = :run_id AND call = :call;

-- name: quota_retry_put
-- Record how often a call has failed; it began `spent_us` ago, unless it was recorded before.
-- scope: system (the caller executes the run)
INSERT INTO quota_retries (run_id, call, customer, tries, since_at)
SELECT r.run_id, :call, r.customer, :tries, {{now}} - :spent_us FROM runs r WHERE r.run_id = :run_id
ON CONFLICT (run_id, call) DO UPDATE SET tries = excluded.tries;

-- name: quota_retry_drop
-- Forget the calls of a run, except those in progress.
-- scope: system (the caller executes the run)
DELETE FROM quota_retries WHERE run_id = :run_id AND NOT call {{any calls}};

-- name: quota_retries_trim
-- Delete the calls of runs that have ended.
-- scope: system (upkeep)
DELETE FROM quota_retries WHERE run_id IN (SELECT q.run_id FROM quota_retries q
    WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = q.run_id) LIMIT :n);

-- name: limit_level_put
-- Store the level of a rate's bucket, and count its tokens by minute; under the limit's lock.
-- scope: system (a limit's slots are shared by all its users)
UPDATE limits SET level = :level, level_at = :level_at, minute = :minute,
    taken = :tokens + CASE WHEN minute = :minute THEN taken ELSE 0 END,
    taken_before = CASE WHEN minute = :minute THEN taken_before
        WHEN minute = :minute - 1 THEN taken ELSE 0 END
WHERE limit_id = :limit_id;

-- name: limit_capacity_put
-- Record a change of a limit's effective capacity; under its lock.
-- scope: system (a limit's slots are shared by all its users)
INSERT INTO limit_capacities (limit_id, customer, capacity, before, cause, at)
VALUES (:limit_id, :customer, :capacity, :before, :cause, :at);

-- name: limit_capacities_list
-- The latest changes of a limit's effective capacity, newest first.
-- scope: system (the caller has looked up the limit by customer)
SELECT at, capacity, before, cause FROM limit_capacities
WHERE limit_id = :limit_id ORDER BY entry DESC LIMIT :n;

-- name: limit_capacities_trim
-- Keep only the newest changes of a limit's capacity.
-- scope: system (upkeep)
DELETE FROM limit_capacities WHERE limit_id = :limit_id AND entry < (
    SELECT min(k.entry) FROM (SELECT entry FROM limit_capacities WHERE limit_id = :limit_id
        ORDER BY entry DESC LIMIT :kept) k);

-- name: limit_capacities_overlong
-- Limits with far more capacity changes than are kept.
-- scope: system (upkeep)
SELECT limit_id FROM limit_capacities GROUP BY limit_id HAVING count(*) > :kept LIMIT :n;

-- name: limit_note_put
-- Insert a history row without a lease.
-- scope: system (under the limit's lock)
INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome, asked_at,
    since_at, at)
VALUES (:limit_id, :customer, :holder, :run_id, :token, :weight, :outcome, :asked_at, :since_at,
    {{now}});

-- name: limit_recent_waits
-- Waits of the first limits by name that ended since a time, for metrics.
-- scope: system (operators)
SELECT l.name, h.asked_at, coalesce(h.since_at, h.at)
FROM (SELECT limit_id, name FROM limits ORDER BY name LIMIT :n) AS l
    JOIN limit_history h ON h.limit_id = l.limit_id
WHERE h.at >= {{now}} - :window_us AND h.asked_at IS NOT NULL AND h.outcome <> 'quota'
ORDER BY l.name;

-- name: limit_history_trim
-- Keep only the newest rows of a limit's history.
-- scope: system (upkeep)
DELETE FROM limit_history WHERE limit_id = :limit_id AND entry < (
    SELECT min(k.entry) FROM (SELECT entry FROM limit_history WHERE limit_id = :limit_id
        ORDER BY entry DESC LIMIT :kept) k);

-- name: limit_history_overlong
-- Limits whose history has far more rows than are kept.
-- scope: system (upkeep)
SELECT limit_id FROM limit_history GROUP BY limit_id HAVING count(*) > :kept LIMIT :n;

-- name: limit_lapsed
-- Limits with expired leases or tickets, for the sweeper.
-- scope: system (sweeper)
SELECT l.limit_id FROM limits l
WHERE EXISTS (SELECT 1 FROM limit_leases e WHERE e.limit_id = l.limit_id
        AND e.until_at + l.grace_us <= {{now}})
    OR EXISTS (SELECT 1 FROM limit_tickets t WHERE t.limit_id = l.limit_id
        AND coalesce(t.kept_until, t.until_at) <= {{now}})
ORDER BY l.limit_id LIMIT :n;

-- name: limit_leases_of_requests
-- Leases of requests that no longer wait.
-- scope: system (by request id, known only to the requester)
SELECT e.lease_id, e.token FROM limit_leases e
WHERE e.limit_id = :limit_id AND e.request {{any requests}};

-- name: limit_lease_find
-- A lease by id, with its limit.
-- scope: system (operators; the caller filters by customer)
SELECT {{lease_columns}} FROM limit_leases e WHERE e.lease_id = :lease_id;

-- name: limit_list
-- Limits by name, with held weight and waiting counts.
-- scope: system (system limits are visible to all; a tenant's key adds :customer)
SELECT {{limit_columns}},
    (SELECT coalesce(sum(e.weight), 0) FROM limit_leases e WHERE e.limit_id = l.limit_id),
    (SELECT count(*) FROM limit_leases e WHERE e.limit_id = l.limit_id),
    (SELECT count(*) FROM limit_tickets t WHERE t.limit_id = l.limit_id AND t.kept_until IS NULL),
    (SELECT count(*) FROM run_limits r WHERE r.limit_id = l.limit_id AND r.is_waiting)
FROM limits l
WHERE (CAST(:customer AS bigint) IS NULL OR l.customer IN (0, :customer))
    AND (l.name, l.customer) > (:after, :after_customer)
    AND (CAST(:name AS text) IS NULL OR l.name = :name)
    AND (CAST(:part AS text) IS NULL
        OR {{pg:strpos}}{{lite:instr}}(lower(l.name), lower(:part)) > 0)
    AND (CAST(:is_chosen AS integer) = 0 OR l.limit_id {{any ids}})
ORDER BY l.name, l.customer LIMIT :n;

-- name: limit_queued
-- Limits that requests or runs wait for: the next limit by index after each, however many wait.
-- scope: system (a limit's slots are shared by all its users)
WITH RECURSIVE t (limit_id, n) AS (
    SELECT (SELECT min(limit_id) FROM limit_tickets), 1
    UNION ALL
    SELECT (SELECT min(o.limit_id) FROM limit_tickets o WHERE o.limit_id > t.limit_id), t.n + 1
    FROM t WHERE t.limit_id IS NOT NULL AND t.n < :n
), r (limit_id, n) AS (
    SELECT (SELECT min(limit_id) FROM run_limits WHERE is_waiting), 1
    UNION ALL
    SELECT (SELECT min(o.limit_id) FROM run_limits o WHERE o.is_waiting
        AND o.limit_id > r.limit_id), r.n + 1
    FROM r WHERE r.limit_id IS NOT NULL AND r.n < :n
)
SELECT t.limit_id FROM t WHERE t.limit_id IS NOT NULL
UNION SELECT r.limit_id FROM r WHERE r.limit_id IS NOT NULL;

-- name: limit_learned
-- Limits whose capacity quota errors have lowered.
-- scope: system (a limit's slots are shared by all its users)
SELECT limit_id FROM limits WHERE learned IS NOT NULL ORDER BY limit_id LIMIT :n;

-- name: limit_of_run
-- Limits that a run holds or waits for.
-- scope: system (operators)
SELECT limit_id FROM limit_leases WHERE run_id = :run_id
UNION SELECT limit_id FROM run_limits WHERE run_id = :run_id
UNION SELECT limit_id FROM limit_tickets WHERE run_id = :run_id;

-- name: limit_holders_list
-- The holders of a limit, longest-held first.
-- scope: system (the caller has looked up the limit by customer)
SELECT {{lease_columns}} FROM limit_leases e WHERE e.limit_id = :limit_id
ORDER BY e.since_at, e.lease_id LIMIT :n;

-- name: limit_queue_list
-- The tickets of a limit, in queue order.
-- scope: system (the caller has looked up the limit by customer)
SELECT {{ticket_columns}} FROM limit_tickets t
WHERE t.limit_id = :limit_id AND t.kept_until IS NULL
ORDER BY t.ticket LIMIT :n;

-- name: limit_history_list
-- The latest waits and holds of a limit, newest first.
-- scope: system (the caller has looked up the limit by customer)
SELECT entry, holder, run_id, token, weight, outcome, asked_at, since_at, at
FROM limit_history WHERE limit_id = :limit_id ORDER BY entry DESC LIMIT :n;
