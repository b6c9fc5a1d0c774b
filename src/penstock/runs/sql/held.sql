-- Runs held by a session, for a worker that lost the response to a claim.

-- name: session_runs
-- The runs held by a session.
-- scope: system (processes serve all customers)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.session_id = :session_id AND r.admission = 9
ORDER BY r.run_id LIMIT 100000;
