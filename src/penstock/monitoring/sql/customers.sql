-- Customers with the health of their configs.

-- fragment: named_customers
c.customer_id > :after AND c.customer_id >= :first AND c.customer_id < :last

-- name: customers_named
-- Customers by name.
-- scope: system (operators)
SELECT c.customer, c.customer_id FROM customers c
WHERE {{named_customers}} ORDER BY c.customer_id LIMIT :limit;

-- name: customers_troubled
-- Customers with a config that fails or was switched off, by name; both have an index.
-- scope: system (operators)
SELECT c.customer, c.customer_id FROM customers c
WHERE {{named_customers}} AND c.customer IN (
    SELECT f.customer FROM config_health h JOIN configs f ON f.config_id = h.config_id
    WHERE h.consecutive_failures > 0 AND f.is_active AND f.deleted_at IS NULL
    UNION
    SELECT f.customer FROM configs f
    WHERE NOT f.is_active AND f.inactive_reason IS NOT NULL AND f.deleted_at IS NULL)
ORDER BY c.customer_id LIMIT :limit;

-- name: customer_facts
-- Configs, next start, open dead letters and running runs of customers; counts stop at 1,000.
-- scope: system (the caller has looked up the customers)
SELECT c.customer,
    count(f.config_id), sum(CASE WHEN f.is_active THEN 1 ELSE 0 END),
    sum(CASE WHEN NOT f.is_active AND f.inactive_reason IS NOT NULL THEN 1 ELSE 0 END),
    coalesce(max(CASE WHEN f.is_active THEN h.consecutive_failures END), 0),
    min(CASE WHEN f.is_active THEN s.next_run_time END),
    max(CASE WHEN NOT f.is_active THEN f.inactive_reason END),
    (SELECT count(*) FROM (SELECT 1 FROM dead_letters d
        WHERE d.customer = c.customer AND d.status = 'open' LIMIT 1000) AS k),
    (SELECT count(*) FROM (SELECT 1 FROM runs r
        WHERE r.customer = c.customer AND r.admission = 9 LIMIT 1000) AS k),
    EXISTS (SELECT 1 FROM pauses q WHERE q.scope = 'customer' AND q.subject = c.customer)
FROM customers c
LEFT JOIN configs f ON f.customer = c.customer AND f.deleted_at IS NULL
LEFT JOIN config_health h ON h.config_id = f.config_id
LEFT JOIN schedule s ON s.config_id = f.config_id
WHERE c.customer {{any ids}} GROUP BY c.customer;

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
