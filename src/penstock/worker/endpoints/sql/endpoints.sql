-- HTTP processors: which endpoints have runs to send.

-- name: endpoint_ready
-- HTTP processors with ready runs, after a given processor. Runs are found by pool, because every
-- HTTP processor has its own.
-- scope: system (the dispatcher serves all customers)
SELECT p.processor, p.pipeline, p.pool, l.name, p.phase, p.name, p.endpoint, p.entity_role
FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline
WHERE p.endpoint IS NOT NULL AND p.processor > :after
    AND (SELECT r.run_id FROM runs r WHERE r.admission = 0 AND r.pool = p.pool LIMIT 1) IS NOT NULL
ORDER BY p.processor LIMIT :limit;

-- name: endpoint_list
-- Every current HTTP processor.
-- scope: system (declarations have no customer)
SELECT p.processor, p.pipeline, p.pool, l.name, p.phase, p.name, p.endpoint, p.entity_role
FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline
WHERE p.endpoint IS NOT NULL AND p.is_current ORDER BY p.processor LIMIT :limit;
