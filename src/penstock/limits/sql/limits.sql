-- Limits: shared capacity and rate. The limit's row is the lock; capacity is the sum of lease rows.

-- fragment: limit_columns
-- A limit, in the order of limits.Limit.
l.limit_id, l.customer, l.name, l.capacity, l.is_adaptive, l.floor, l.learned, l.learned_at,
l.lease_us, l.grace_us, l.queue_max, l.rate, l.burst, l.level, l.level_at, l.quota_errors,
l.last_quota_at, l.is_declared, l.version, l.created_at, l.updated_at, l.updated_by

-- fragment: lease_columns
-- Who holds, in the order of limits.Lease.
lease_id, limit_id, weight, token, broker, holder, request, run_id, is_taken,
lease_us, asked_at, since_at, until_at

-- fragment: given_columns
-- What a lease that was given back says about the limit, in the order of limit_turn._Given.
weight, token, since_at

-- fragment: ticket_columns
-- Who waits, in the order of limits.Ticket.
ticket, weight, broker, holder, request, run_id, lease_us, asked_at, until_at

-- name: limit_get
-- A limit by name.
SELECT {{limit_columns}} FROM limits l WHERE l.customer = :customer AND l.name = :name;

-- name: limit_add
-- A new limit; no row when it is there already.
-- scope: system (customer is a column of the new row)
INSERT INTO limits (customer, name, capacity, is_adaptive, floor, lease_us, grace_us, queue_max,
    rate, burst, is_declared, created_at, updated_at, updated_by)
VALUES (:customer, :name, :capacity, :is_adaptive, :floor, :lease_us, :grace_us, :queue_max,
    :rate, :burst, :is_declared, {{now}}, {{now}}, :actor)
ON CONFLICT (customer, name) DO NOTHING
RETURNING limit_id;

-- name: limit_alter
-- New settings of a limit, under its lock; what was learned is kept unless it no longer fits.
-- scope: system (the caller looked it up by customer and holds its lock)
UPDATE limits SET capacity = :capacity, is_adaptive = :is_adaptive, floor = :floor,
    lease_us = :lease_us, grace_us = :grace_us, queue_max = :queue_max, rate = :rate,
    burst = :burst, learned = :learned, level = :level, level_at = :level_at, is_declared = TRUE,
    version = version + 1, updated_at = {{now}}, updated_by = :actor
WHERE limit_id = :limit_id;

-- name: limit_lock
-- A limit, locked: whoever judges its capacity does so in a statement after this one.
-- scope: system (slots are shared by everybody who knows the limit)
SELECT {{limit_columns}} FROM limits l WHERE l.limit_id = :limit_id {{pg:FOR NO KEY UPDATE}};

-- name: limit_look
-- What is held, as of now, and whether anybody waits. Never before the lock, never in its statement.
-- scope: system (capacity is judged over everybody's leases)
SELECT coalesce(sum(e.weight), 0), min(e.until_at), {{now}},
    EXISTS (SELECT 1 FROM run_limits r WHERE r.limit_id = :limit_id AND r.is_waiting),
    EXISTS (SELECT 1 FROM limit_tickets t WHERE t.limit_id = :limit_id)
FROM limit_leases e WHERE e.limit_id = :limit_id;

-- name: limit_see
-- A limit and what is held of it at once, where the transaction is the lock and nobody else writes.
-- scope: system (capacity is judged over everybody's leases)
SELECT h.held, h.least, {{now}},
    EXISTS (SELECT 1 FROM run_limits r WHERE r.limit_id = :limit_id AND r.is_waiting),
    EXISTS (SELECT 1 FROM limit_tickets t WHERE t.limit_id = :limit_id),
    {{limit_columns}}
FROM limits l, (SELECT coalesce(sum(e.weight), 0) AS held, min(e.until_at) AS least
    FROM limit_leases e WHERE e.limit_id = :limit_id) AS h
WHERE l.limit_id = :limit_id;

-- name: limit_line
-- The next in line.
-- scope: system (the line is everybody's)
SELECT {{ticket_columns}} FROM limit_tickets
WHERE limit_id = :limit_id AND ticket > :after ORDER BY ticket LIMIT :n;

-- name: limit_grant_one [postgres]
-- A lease for somebody who never had to wait.
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
-- Leases for those whose turn it is; their tickets are used up.
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
-- A holder gives back; the same as the batch below, planned once.
-- scope: system (leases are known by token)
WITH e AS (DELETE FROM limit_leases
    WHERE lease_id = :lease_id AND token = :token AND limit_id = :limit_id RETURNING *),
told AS (INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome,
        asked_at, since_at, at)
    SELECT e.limit_id, e.customer, e.holder, e.run_id, e.token, e.weight,
        CAST(:outcome AS text), e.asked_at, e.since_at, {{now}} FROM e)
SELECT {{given_columns}} FROM e;

-- name: limit_release_one [sqlite]
-- differs because SQLite cannot change rows inside WITH.
-- scope: system (leases are known by token)
INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome, asked_at,
    since_at, at)
SELECT limit_id, customer, holder, run_id, token, weight, :outcome, asked_at, since_at, {{now}}
FROM limit_leases WHERE lease_id = :lease_id AND token = :token AND limit_id = :limit_id;
DELETE FROM limit_leases WHERE lease_id = :lease_id AND token = :token AND limit_id = :limit_id
RETURNING {{given_columns}};

-- name: limit_release_many [postgres]
-- Holders give back by (lease, token); a late, second or foreign release changes nothing.
-- scope: system (leases are known by token)
-- batch: lease_id bigint, token bigint
WITH e AS (DELETE FROM limit_leases e USING {{batch}}
    WHERE e.lease_id = batch.lease_id AND e.token = batch.token AND e.limit_id = :limit_id
        AND e.lease_id = ANY(:b_lease_id::bigint[])
    RETURNING e.*),
told AS (INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome,
        asked_at, since_at, at)
    SELECT e.limit_id, e.customer, e.holder, e.run_id, e.token, e.weight,
        CAST(:outcome AS text), e.asked_at, e.since_at, {{now}} FROM e ORDER BY e.lease_id)
SELECT {{given_columns}} FROM e ORDER BY e.lease_id;

-- name: limit_release_many [sqlite]
-- differs because SQLite cannot change rows inside WITH.
-- scope: system (leases are known by token)
-- batch: lease_id bigint, token bigint
INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome, asked_at,
    since_at, at)
SELECT e.limit_id, e.customer, e.holder, e.run_id, e.token, e.weight, :outcome, e.asked_at,
    e.since_at, {{now}}
FROM {{batch}} JOIN limit_leases e ON e.lease_id = batch.lease_id AND e.token = batch.token
WHERE e.limit_id = :limit_id ORDER BY e.lease_id;
DELETE FROM limit_leases WHERE limit_id = :limit_id
    AND (lease_id, token) IN (SELECT batch.lease_id, batch.token FROM {{batch}})
RETURNING {{given_columns}};

-- name: limit_expired
-- Leases of a limit that ran out, and the grace with them; to be released under the limit's lock.
-- scope: system (capacity is judged over everybody's leases)
SELECT e.lease_id, e.token FROM limit_leases e
WHERE e.limit_id = :limit_id AND e.until_at + :grace_us <= {{now}}
ORDER BY e.lease_id {{pg:FOR UPDATE}};

-- name: limit_renew_many
-- Holders go on holding; no row: the lease was given to others. Needs no lock of the limit, because
-- a lease ends by being deleted, and a row that is deleted cannot be renewed.
-- scope: system (leases are known by token)
-- batch: lease_id bigint, token bigint
UPDATE limit_leases
SET until_at = greatest({{now}}, limit_leases.since_at) + limit_leases.lease_us
FROM {{batch}} WHERE limit_leases.lease_id = batch.lease_id AND limit_leases.token = batch.token
    AND limit_leases.lease_us IS NOT NULL
    {{pg:AND limit_leases.lease_id = ANY(:b_lease_id::bigint[])}}
RETURNING limit_leases.lease_id, limit_leases.until_at;

-- name: limit_collect
-- What others granted to this broker's waiters; from now on they last as long as was wanted.
-- scope: system (a broker serves whoever runs in its process)
UPDATE limit_leases
SET is_taken = TRUE, until_at = greatest({{now}}, since_at) + lease_us
WHERE limit_id = :limit_id AND broker = :broker AND NOT is_taken
RETURNING {{lease_columns}};

-- name: limit_adopt_leases
-- Leases that were granted to these requests before: the answer was lost, or the run was snoozed.
-- scope: system (requests are known to who made them)
UPDATE limit_leases SET broker = :broker, is_taken = TRUE,
    until_at = greatest({{now}}, since_at) + lease_us
WHERE limit_id = :limit_id AND request {{any requests}} AND lease_us IS NOT NULL
RETURNING {{lease_columns}};

-- name: limit_adopt_tickets
-- Places in line that these requests had before.
-- scope: system (requests are known to who made them)
UPDATE limit_tickets SET broker = :broker, until_at = {{now}} + :ticket_us
WHERE limit_id = :limit_id AND request {{any requests}}
RETURNING {{ticket_columns}};

-- name: ticket_put_many
-- Places in line, in the order given; numbered under the limit's lock, so they follow each other.
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
-- How long the line is.
-- scope: system (the line is everybody's)
SELECT count(*) FROM limit_tickets WHERE limit_id = :limit_id;

-- name: ticket_drop_many
-- Tickets that wait no longer, told in the history.
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
-- A broker answers for its waiters; what is missing was dropped, or granted.
-- scope: system (a broker serves whoever runs in its process)
UPDATE limit_tickets SET until_at = {{now}} + :ticket_us
WHERE broker = :broker AND limit_id {{any ids}}
RETURNING request;

-- name: ticket_snooze
-- A run waits without a worker: its place is kept, and nobody answers for it.
-- scope: system (requests are known to who made them)
UPDATE limit_tickets SET broker = '', until_at = {{now}} + :ticket_us
WHERE limit_id = :limit_id AND request = :request
RETURNING ticket;

-- name: limit_run_wake
-- Snoozed runs whose turn has come are due at once.
-- scope: system (whoever grants serves every customer)
UPDATE runs SET scheduled_time = {{now}} WHERE run_id {{any ids}} AND admission = 1
RETURNING run_id;

-- name: limit_run_alive
-- Runs that can use what is granted to them now: about to start, or running. Locked, so that one
-- that is being put back meanwhile either is there by now or finds its grant.
-- scope: system (whoever grants serves every customer)
SELECT run_id FROM runs WHERE run_id {{any ids}} AND admission IN (0, 1, 9)
ORDER BY run_id {{pg:FOR NO KEY UPDATE}};

-- name: limit_run_granted
-- Of runs that were just put back, those that were granted their slot meanwhile are due at once.
-- scope: system (the caller just released the runs)
UPDATE runs SET scheduled_time = {{now}} WHERE run_id {{any ids}} AND admission = 1
    AND EXISTS (SELECT 1 FROM limit_leases e WHERE e.run_id = runs.run_id
        AND e.lease_us IS NOT NULL AND e.broker = '' AND e.since_at <= {{now}})
RETURNING run_id;

-- name: limit_learn
-- What quota errors and successes taught; under the limit's lock.
-- scope: system (slots are shared by everybody who knows the limit)
UPDATE limits SET learned = :learned, learned_at = :learned_at WHERE limit_id = :limit_id;

-- name: limit_quota_put
-- A quota error, counted.
-- scope: system (slots are shared by everybody who knows the limit)
UPDATE limits SET quota_errors = quota_errors + 1, last_quota_at = {{now}}
WHERE limit_id = :limit_id RETURNING quota_errors, {{now}};

-- name: limit_quota_of_run
-- How often a run met the quota of a limit by now, since when, and the time.
-- scope: system (the caller executes the run)
SELECT count(*), min(at), {{now}} FROM limit_history
WHERE limit_id = :limit_id AND run_id = :run_id AND outcome = 'quota';

-- name: limit_level_put
-- What is in the bucket of a rate; under the limit's lock.
-- scope: system (slots are shared by everybody who knows the limit)
UPDATE limits SET level = :level, level_at = :level_at WHERE limit_id = :limit_id;

-- name: limit_note_put
-- One line of a limit's history that belongs to no lease row.
-- scope: system (under the limit's lock)
INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome, asked_at,
    since_at, at)
VALUES (:limit_id, :customer, :holder, :run_id, :token, :weight, :outcome, :asked_at, :since_at,
    {{now}});

-- name: limit_history_trim
-- Only the last lines of a limit's history are kept.
-- scope: system (upkeep)
DELETE FROM limit_history WHERE limit_id = :limit_id AND entry < (
    SELECT min(k.entry) FROM (SELECT entry FROM limit_history WHERE limit_id = :limit_id
        ORDER BY entry DESC LIMIT :kept) k);

-- name: limit_history_long
-- Limits whose history has grown well past what is kept.
-- scope: system (upkeep)
SELECT limit_id FROM limit_history GROUP BY limit_id HAVING count(*) > :kept LIMIT :n;

-- name: limit_lapsed
-- Limits with leases or tickets that ran out, for the sweep.
-- scope: system (sweeper)
SELECT l.limit_id FROM limits l
WHERE EXISTS (SELECT 1 FROM limit_leases e WHERE e.limit_id = l.limit_id
        AND e.until_at + l.grace_us <= {{now}})
    OR EXISTS (SELECT 1 FROM limit_tickets t WHERE t.limit_id = l.limit_id
        AND t.until_at <= {{now}})
ORDER BY l.limit_id LIMIT :n;

-- name: limit_leases_asked
-- Leases of requests that nobody waits for any more.
-- scope: system (requests are known to who made them)
SELECT e.lease_id, e.token FROM limit_leases e
WHERE e.limit_id = :limit_id AND e.request {{any requests}};

-- name: limit_lease_find
-- Which limit a lease is of.
-- scope: system (an operator's look; the caller filters by customer)
SELECT {{lease_columns}} FROM limit_leases e WHERE e.lease_id = :lease_id;

-- name: limit_list
-- Limits by name, with what is held and how many wait.
-- scope: system (limits of the house are everybody's; a bound caller adds :customer)
SELECT {{limit_columns}},
    (SELECT coalesce(sum(e.weight), 0) FROM limit_leases e WHERE e.limit_id = l.limit_id),
    (SELECT count(*) FROM limit_leases e WHERE e.limit_id = l.limit_id),
    (SELECT count(*) FROM limit_tickets t WHERE t.limit_id = l.limit_id),
    (SELECT count(*) FROM run_limits r WHERE r.limit_id = l.limit_id AND r.is_waiting)
FROM limits l
WHERE (CAST(:customer AS bigint) IS NULL OR l.customer IN (0, :customer)) AND l.name > :after
    AND (CAST(:name AS text) IS NULL OR l.name = :name)
ORDER BY l.name, l.customer LIMIT :n;

-- name: limit_holders_list
-- Who holds a limit, the longest first.
-- scope: system (the caller looked the limit up by customer)
SELECT {{lease_columns}} FROM limit_leases e WHERE e.limit_id = :limit_id
ORDER BY e.since_at, e.lease_id LIMIT :n;

-- name: limit_queue_list
-- Who waits for a limit, in order.
-- scope: system (the caller looked the limit up by customer)
SELECT {{ticket_columns}} FROM limit_tickets t WHERE t.limit_id = :limit_id
ORDER BY t.ticket LIMIT :n;

-- name: limit_position
-- How many stand before a request in line; no row: it does not wait.
-- scope: system (requests are known to who made them)
SELECT (SELECT count(*) FROM limit_tickets b
    WHERE b.limit_id = t.limit_id AND b.ticket < t.ticket)
FROM limit_tickets t WHERE t.limit_id = :limit_id AND t.request = :request;

-- name: limit_history_list
-- The last waits and holds of a limit, the newest first.
-- scope: system (the caller looked the limit up by customer)
SELECT entry, holder, run_id, token, weight, outcome, asked_at, since_at, at
FROM limit_history WHERE limit_id = :limit_id ORDER BY entry DESC LIMIT :n;
