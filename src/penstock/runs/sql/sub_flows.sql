-- Runs that wait for a flow. Such a run is PENDING with admission 6 until the flow has ended.

-- name: sub_flow_put
-- Add a wait of a run; one that is there already waits again.
-- scope: system (the caller has released the run by its token)
INSERT INTO sub_flows (run_id, wait_key, root_run_id, customer, flow_id, parent_flow_id, is_opened,
    at, resumed_at)
VALUES (:run_id, :wait_key, :root, :customer, :flow_id, :parent_flow_id, :is_opened, {{now}},
    CASE WHEN :is_ended THEN {{now}} END)
ON CONFLICT (run_id, wait_key) DO UPDATE SET resumed_at = excluded.resumed_at;

-- name: sub_flow_find
-- The flows that the attempts of a run waited for under a key, newest first.
-- scope: system (the caller holds the run)
SELECT run_id, flow_id, is_opened, at, resumed_at FROM sub_flows
WHERE root_run_id = :root AND wait_key = :wait_key ORDER BY run_id DESC;

-- name: sub_flow_list
-- The flows that a run waited for, in order.
-- scope: system (the caller has checked the run)
SELECT run_id, flow_id, is_opened, at, resumed_at FROM sub_flows
WHERE run_id = :run_id ORDER BY at, flow_id LIMIT 100;

-- name: sub_flow_waiting
-- The flow that a run waits for.
-- scope: system (the caller has checked the run)
SELECT flow_id FROM sub_flows WHERE run_id = :run_id AND resumed_at IS NULL LIMIT 1;

-- name: sub_flow_ancestors
-- The flows whose runs wait for a flow, directly or through others, nearest first.
-- scope: system (waits of one customer)
WITH RECURSIVE up (flow_id, depth) AS (
    SELECT s.parent_flow_id, 1 FROM sub_flows s
    WHERE s.flow_id = :flow_id AND s.resumed_at IS NULL AND s.parent_flow_id IS NOT NULL
    UNION
    SELECT s.parent_flow_id, up.depth + 1 FROM up JOIN sub_flows s ON s.flow_id = up.flow_id
    WHERE s.resumed_at IS NULL AND s.parent_flow_id IS NOT NULL AND up.depth < :most)
SELECT flow_id, max(depth) FROM up GROUP BY flow_id ORDER BY 2;

-- name: run_suspend
-- Keep a released run out of the queue until its flow has ended.
-- scope: system (the caller has released the run by its token)
UPDATE runs SET admission = 6, state_at = {{now}}
WHERE run_id = :run_id AND admission = 1;

-- name: sub_flow_resume_many [postgres]
-- Put the runs back into the queue that waited for flows which have ended.
-- scope: system (the cascade serves all customers)
WITH over AS (
    UPDATE sub_flows SET resumed_at = {{now}}
    WHERE flow_id {{any ids}} AND resumed_at IS NULL
    RETURNING run_id, flow_id
)
UPDATE runs SET admission = 1, scheduled_time = {{now}}, state_at = {{now}}
FROM over WHERE runs.run_id = over.run_id AND runs.admission = 6
RETURNING runs.run_id, runs.customer, over.flow_id;

-- name: sub_flow_resume_many [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (the cascade serves all customers)
UPDATE runs SET admission = 1, scheduled_time = {{now}}, state_at = {{now}}
WHERE admission = 6 AND run_id IN (
    SELECT run_id FROM sub_flows WHERE flow_id {{any ids}} AND resumed_at IS NULL);
CREATE TEMP TABLE IF NOT EXISTS resumed (run_id integer, customer integer, flow_id integer);
DELETE FROM temp.resumed;
INSERT INTO temp.resumed SELECT s.run_id, s.customer, s.flow_id FROM sub_flows s
    WHERE s.flow_id {{any ids}} AND s.resumed_at IS NULL
        AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = s.run_id AND r.state = 'PENDING');
UPDATE sub_flows SET resumed_at = {{now}} WHERE flow_id {{any ids}} AND resumed_at IS NULL;
SELECT run_id, customer, flow_id FROM temp.resumed;

-- name: sub_flow_abandon_many
-- End the waits of runs that ended while they waited; returns the flows that they opened and that
-- no other run waits for.
-- scope: system (the caller has ended the runs)
UPDATE sub_flows SET resumed_at = {{now}}
WHERE run_id {{any ids}} AND resumed_at IS NULL
RETURNING run_id, flow_id, is_opened AND NOT EXISTS (
    SELECT 1 FROM sub_flows o WHERE o.flow_id = sub_flows.flow_id
        AND o.run_id <> sub_flows.run_id AND o.resumed_at IS NULL);

-- name: sub_flows_prune
-- Delete waits past the retention of history, in chunks.
-- scope: system (retention)
DELETE FROM sub_flows WHERE (run_id, wait_key) IN (
    SELECT run_id, wait_key FROM sub_flows
    WHERE at < :before AND resumed_at IS NOT NULL LIMIT :n);
