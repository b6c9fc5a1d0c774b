-- What a session holds: for a worker that lost the answer to a claim.

-- name: session_runs
-- The runs a session holds.
-- scope: system (processes serve every customer)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.session_id = :session_id AND r.admission = 9
ORDER BY r.run_id LIMIT 100000;
