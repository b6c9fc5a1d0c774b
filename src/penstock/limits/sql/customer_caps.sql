-- The maximum number of runs of a customer, applied to live runs after a change.

-- name: cap_changed
-- The next customer whose maximum was changed recently, locked.
-- scope: system (the admitter serves all customers)
SELECT s.customer, c.customer_id, s.concurrency, {{now}} - s.capped_at
FROM customer_settings s JOIN customers c ON c.customer = s.customer
WHERE s.capped_at IS NOT NULL AND s.customer > :after ORDER BY s.customer LIMIT 1
{{pg:FOR NO KEY UPDATE OF s SKIP LOCKED}};

-- name: cap_applied
-- Record that the maximum of a customer has been applied to all its live runs.
-- scope: system (the admitter serves all customers)
UPDATE customer_settings SET capped_at = NULL WHERE customer = :customer;

-- name: cap_remove
-- Remove the maximum of a customer. The runs that wait for its limit are admitted; the limit is
-- deleted like any limit that is no longer used.
-- scope: system (the admitter serves all customers)
UPDATE limits SET capacity = NULL, version = version + 1, updated_at = {{now}}
WHERE customer = :customer AND name = :name AND capacity IS NOT NULL
RETURNING limit_id;

-- fragment: without_cap
-- Live runs of a customer that neither hold its limit nor are queued for it.
FROM runs r WHERE r.customer = :customer
    AND NOT EXISTS (SELECT 1 FROM limit_leases e
        WHERE e.run_id = r.run_id AND e.limit_id = :limit_id)
    AND NOT EXISTS (SELECT 1 FROM run_limits w
        WHERE w.run_id = r.run_id AND w.limit_id = :limit_id)

-- name: cap_unheld
-- Claimed and running runs that do not hold their customer's limit.
-- scope: system (the admitter serves all customers)
SELECT r.run_id {{without_cap}} AND r.admission = 9
ORDER BY r.run_id LIMIT :n {{pg:FOR UPDATE SKIP LOCKED}};

-- fragment: leases_of_cap
INSERT INTO limit_leases (limit_id, customer, weight, token, holder, request, run_id, asked_at,
    since_at)

-- name: cap_hold_many [postgres]
-- Claimed and running runs hold their customer's limit until they end, even beyond its capacity.
-- scope: system (the admitter serves all customers)
-- batch: run_id bigint, holder text
{{leases_of_cap}}
SELECT :limit_id, :customer, 1, nextval('token_seq'), batch.holder, 'run:' || batch.run_id,
    batch.run_id, {{now}}, {{now}}
FROM {{batch}} ORDER BY batch.run_id;
UPDATE runs SET limits = limits + 1 WHERE run_id IN (SELECT batch.run_id FROM {{batch}});

-- name: cap_hold_many [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (the admitter serves all customers)
-- batch: run_id bigint, holder text
{{leases_of_cap}}
SELECT :limit_id, :customer, 1, (SELECT value FROM counters WHERE name = 'token') + batch.ord,
    batch.holder, 'run:' || batch.run_id, batch.run_id, {{now}}, {{now}}
FROM {{batch}} ORDER BY batch.ord;
UPDATE counters SET value = value + (SELECT count(*) FROM {{batch}}) WHERE name = 'token';
UPDATE runs SET limits = limits + 1 WHERE run_id IN (SELECT batch.run_id FROM {{batch}});

-- name: cap_waiting
-- Ready and queued runs that have to be queued for their customer's limit.
-- scope: system (the admitter serves all customers)
SELECT r.run_id {{without_cap}} AND (r.admission = 0 OR (r.admission = 4 AND r.limits > 0))
ORDER BY r.run_id LIMIT :n {{pg:FOR UPDATE SKIP LOCKED}};
