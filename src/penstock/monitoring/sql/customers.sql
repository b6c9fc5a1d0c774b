-- Customers with the health of their configs. Lists are read in order of an index, a block at a
-- time; `fits` says which rows of a block match the filters.

-- fragment: fits_customer
k.customer_id >= :first AND k.customer_id < :last
    AND (CAST(:health_rank AS bigint) IS NULL OR k.health_rank = :health_rank)
    AND (NOT CAST(:is_by_config AS boolean) OR EXISTS (SELECT 1 FROM configs f
        WHERE f.customer = k.customer AND f.deleted_at IS NULL
            AND (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
            AND (CAST(:provider AS text) IS NULL OR f.provider = :provider)
            AND (CAST(:domain AS text) IS NULL OR f.domain = :domain)))

-- name: customer_alone
-- One customer, as in the lists.
-- scope: system (the caller has looked up the customer)
SELECT k.customer, k.customer_id, 0, {{fits_customer}} FROM customers k
WHERE k.customer = :customer AND k.customer_id > :after LIMIT :most;

-- name: customers_by_name
-- Customers by name.
-- scope: system (operators)
SELECT k.customer, k.customer_id, 0, {{fits_customer}} FROM (
    SELECT c.customer, c.customer_id, c.health_rank FROM customers c
    WHERE c.customer_id > :after AND c.customer_id >= :first AND c.customer_id < :last
    ORDER BY c.customer_id LIMIT :most) AS k
ORDER BY k.customer_id;

-- name: customers_by_health
-- Customers by their stored health, worst first, then by name.
-- scope: system (operators)
SELECT k.customer, k.customer_id, k.health_rank, {{fits_customer}} FROM (
    SELECT c.customer, c.customer_id, c.health_rank FROM customers c
    WHERE (c.health_rank, c.customer_id) > (:after_place, :after)
        AND c.health_rank BETWEEN :rank_from AND :rank_to
    ORDER BY c.health_rank, c.customer_id LIMIT :most) AS k
ORDER BY k.health_rank, k.customer_id;

-- name: customers_by_next_start
-- Customers with a next start, soonest first, as stored.
-- scope: system (operators)
SELECT k.customer, k.customer_id, k.next_run_time, {{fits_customer}} FROM (
    SELECT c.customer, c.customer_id, c.health_rank, c.next_run_time FROM customers c
    WHERE (c.next_run_time, c.customer_id) > (:after_place, :after) AND c.next_run_time IS NOT NULL
    ORDER BY c.next_run_time, c.customer_id LIMIT :most) AS k
ORDER BY k.next_run_time, k.customer_id;

-- name: customers_with_health
-- Number of customers with a stored health, up to :most.
-- scope: system (operators)
SELECT count(*) FROM (SELECT 1 FROM customers c WHERE c.health_rank = :health_rank LIMIT :most) AS k;

-- name: customers_stored
-- The stored health and next start of customers, for the service that refreshes them.
-- scope: system (operators)
SELECT c.customer, c.health_rank, c.next_run_time FROM customers c
WHERE c.customer {{any ids}};

-- name: customer_keys
-- The next keys of customers after a key.
-- scope: system (operators)
SELECT c.customer FROM customers c WHERE c.customer > :after ORDER BY c.customer LIMIT :n;

-- name: customers_suspect
-- Customers whose stored health or next start is probably outdated, found by index: a config fails,
-- a pause began, a dead letter is new, or the next start has passed.
-- scope: system (operators)
SELECT c.customer FROM config_health h JOIN configs f ON f.config_id = h.config_id
    JOIN customers c ON c.customer = f.customer
    WHERE h.consecutive_failures > 0 AND f.is_active AND f.deleted_at IS NULL
        AND c.health_rank > :at_risk
        -- A paused customer is paused, whatever its configs do.
        AND NOT EXISTS (SELECT 1 FROM pauses q WHERE q.scope = 'customer' AND q.subject = c.customer)
UNION
SELECT c.customer FROM pauses q JOIN customers c ON c.customer = q.subject
    WHERE q.scope = 'customer' AND c.health_rank <> :paused
UNION
SELECT c.customer FROM (SELECT d.customer FROM dead_letters d
        WHERE d.status = 'open' AND d.died_at > :since ORDER BY d.died_at DESC LIMIT :n) AS d
    JOIN customers c ON c.customer = d.customer WHERE c.health_rank > :at_risk
UNION
SELECT k.customer FROM (SELECT c.customer FROM customers c
    WHERE c.next_run_time <= {{now}} ORDER BY c.next_run_time, c.customer_id LIMIT :n) AS k
ORDER BY 1 LIMIT :n;

-- name: customers_lock_free
-- Lock those of the customers that no other transaction has locked.
-- scope: system (operators)
SELECT c.customer FROM customers c WHERE c.customer {{any ids}}
ORDER BY c.customer {{pg:FOR NO KEY UPDATE SKIP LOCKED}};

-- name: customer_health_put
-- Store the health and the next start of customers that the caller has locked.
-- scope: system (operators)
-- batch: customer bigint, health_rank smallint, next_run_time bigint
UPDATE customers SET health_rank = batch.health_rank, next_run_time = batch.next_run_time
FROM {{batch}} WHERE customers.customer = batch.customer;

-- name: customer_facts
-- Configs, next start and open dead letters of customers; the count of dead letters stops at :most.
-- scope: system (the caller has looked up the customers)
SELECT c.customer,
    count(f.config_id), sum(CASE WHEN f.is_active THEN 1 ELSE 0 END),
    sum(CASE WHEN NOT f.is_active AND f.inactive_reason IS NOT NULL THEN 1 ELSE 0 END),
    coalesce(max(CASE WHEN f.is_active THEN h.consecutive_failures END), 0),
    min(CASE WHEN f.is_active THEN s.next_run_time END),
    max(CASE WHEN NOT f.is_active THEN f.inactive_reason END),
    (SELECT count(*) FROM (SELECT 1 FROM dead_letters d
        WHERE d.customer = c.customer AND d.status = 'open' LIMIT :most) AS k),
    EXISTS (SELECT 1 FROM pauses q WHERE q.scope = 'customer' AND q.subject = c.customer)
FROM customers c
LEFT JOIN configs f ON f.customer = c.customer AND f.deleted_at IS NULL
LEFT JOIN config_health h ON h.config_id = f.config_id
LEFT JOIN schedule s ON s.config_id = f.config_id
WHERE c.customer {{any ids}} GROUP BY c.customer;

-- name: customer_slow
-- Processors of customers whose newest execution took longer than those before, newest first.
-- scope: system (the caller has looked up the customers)
SELECT a.customer, p.name, a.value, a.high
FROM anomalies a JOIN processors p ON p.processor = a.processor
WHERE a.customer {{any ids}} AND a.ended_at IS NULL AND a.measure = 'duration' AND a.value > a.high
ORDER BY a.at DESC, a.anomaly_id DESC;

-- name: customer_running
-- Held runs of customers. All held runs are read; the concurrency of the workers bounds them.
-- scope: system (the caller has looked up the customers)
SELECT r.customer, count(*) FROM runs r WHERE r.admission = 9 AND r.customer {{any ids}}
GROUP BY r.customer;

-- name: customer_today
-- Ended runs of customers since a time: those counted, and those that ended after the counters.
-- scope: system (the caller has looked up the customers)
SELECT c.customer,
    (SELECT coalesce(sum(r.completed + r.failed + r.cancelled), 0) FROM run_counts r
        WHERE r.customer = c.customer AND r.at >= :since)
    + (SELECT count(*) FROM (SELECT 1 FROM history h
        WHERE h.customer = c.customer AND h.finished_at > :folded_to AND h.finished_at >= :since
        LIMIT :most) AS k)
FROM customers c WHERE c.customer {{any ids}};

-- name: customer_outcomes
-- The final states of the newest runs of customers, newest first.
-- scope: system (the caller has looked up the customers)
SELECT c.customer, (SELECT {{pg:string_agg(k.mark, '')}}{{lite:group_concat(k.mark, '')}} FROM (
    SELECT CASE h.final_state WHEN 'COMPLETED' THEN 'c' WHEN 'CANCELLED' THEN 'x' ELSE 'f' END AS mark
    FROM history h WHERE h.customer = c.customer ORDER BY h.slot DESC, h.run_id DESC LIMIT :n) AS k)
FROM customers c WHERE c.customer {{any ids}};

-- name: customer_week
-- Ended runs of customers in whole days.
-- scope: system (the caller has looked up the customers)
SELECT d.customer, sum(d.runs),
    sum(CASE WHEN d.final_state = 'COMPLETED' THEN d.runs ELSE 0 END),
    sum(d.sla_runs), sum(d.sla_kept)
FROM customer_days d WHERE d.customer {{any ids}} AND d.day_at >= :since GROUP BY d.customer;
