-- Runs held by a session, for a worker that lost the response to a claim.

-- name: session_runs
-- The runs held by a session.
-- scope: system (processes serve all customers)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.session_id = :session_id AND r.admission = 9
ORDER BY r.run_id LIMIT 100000;

-- name: run_token_lock [postgres]
-- Keep a run with its holder until the transaction ends; no row if the token is stale.
-- scope: system (a token is secret; a tenant's key adds :customer)
SELECT r.customer, c.customer_id FROM runs r JOIN customers c ON c.customer = r.customer
WHERE r.run_id = :run_id AND r.token = :token AND r.admission = 9
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
FOR KEY SHARE OF r;

-- name: run_token_lock [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (a token is secret; a tenant's key adds :customer)
SELECT r.customer, c.customer_id FROM runs r JOIN customers c ON c.customer = r.customer
WHERE r.run_id = :run_id AND r.token = :token AND r.admission = 9
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer);
