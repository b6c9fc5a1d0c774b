-- The grid of partitions and phases.

-- name: grid_partitions
-- The newest partitions of a pipeline that have flows or, once those are pruned, logged phases.
-- scope: system (the caller has looked up the customer)
SELECT f.partition FROM (
    SELECT DISTINCT partition FROM flows
    WHERE customer = :customer AND pipeline = :pipeline AND partition >= :first
        AND (CAST(:last AS text) IS NULL OR partition <= :last)
        AND (CAST(:mode AS text) IS NULL OR mode = :mode)
    ORDER BY partition DESC LIMIT :n) AS f
UNION
SELECT d.partition FROM (
    SELECT DISTINCT partition FROM phase_completion_log
    WHERE customer = :customer AND pipeline = :pipeline AND partition >= :first
        AND (CAST(:last AS text) IS NULL OR partition <= :last)
        AND (CAST(:mode AS text) IS NULL OR mode = :mode)
    ORDER BY partition DESC LIMIT :n) AS d
ORDER BY 1 DESC LIMIT :n;

-- name: grid_flows
-- The flows of partitions, the newest generation last.
-- scope: system (the caller has looked up the customer)
SELECT {{flow_columns}} FROM flows w {{flow_joins}}
WHERE w.customer = :customer AND w.pipeline = :pipeline AND w.partition {{any names}}
    AND (CAST(:mode AS text) IS NULL OR w.mode = :mode)
ORDER BY w.flow_id DESC LIMIT :n;

-- name: grid_logged
-- The logged phases of partitions, the newest flow first.
-- scope: system (the caller has looked up the customer)
SELECT flow_id, partition, mode, phase, status, started_at, completed_at FROM phase_completion_log
WHERE customer = :customer AND pipeline = :pipeline AND partition {{any names}}
    AND (CAST(:mode AS text) IS NULL OR mode = :mode)
ORDER BY flow_id DESC LIMIT :n;

-- name: phase_marks
-- The states of the phases of flows, without their evidence; gates of processors come last.
-- scope: system (the caller may see the flows)
SELECT flow_id, phase, state, is_degraded, {{pg:gate::json}}{{lite:gate}} ->> 'verdict', since_at,
    started_at, ended_at
FROM flow_phases WHERE flow_id {{any ids}}
ORDER BY CASE WHEN processor = '' THEN 0 ELSE 1 END, gate_id;
