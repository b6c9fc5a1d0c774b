-- The fallbacks of the cascade: due fallback times, and flows that self-heal evaluates.

-- name: fallback_due
-- Flows with phases whose fallback time has come, oldest first.
-- scope: system (the ladder serves all customers)
SELECT p.flow_id FROM flow_phases p
WHERE p.fallback_at IS NOT NULL AND p.fallback_at <= {{now}}
ORDER BY p.fallback_at, p.gate_id LIMIT :n;

-- name: fallback_take
-- Take the due fallbacks of locked flows, and plan the next attempt. Flows that ended have none.
-- scope: system (the caller locked the flows)
UPDATE flow_phases SET fallback_at = CASE WHEN flow_phases.flow_id {{any open}}
    THEN {{now}} + :retry_us END
WHERE flow_phases.flow_id {{any ids}} AND fallback_at <= {{now}}
RETURNING flow_id, phase;

-- name: heal_candidates
-- Open flows in which something may be overdue, in the order of their deadlines. A phase in
-- progress, blocked, or waiting for an evaluation that is overdue; a phase that has not begun after
-- another ended or, in the first phases, after the flow was opened.
-- scope: system (the ladder serves all customers)
SELECT w.flow_id, w.deadline_at FROM flows w
WHERE w.ended_at IS NULL AND w.state = 'OPEN'
    AND (w.deadline_at > :deadline_at OR (w.deadline_at = :deadline_at AND w.flow_id > :flow_id))
    AND w.created_at <= {{now}} - :least_us
    AND EXISTS (SELECT 1 FROM flow_phases p WHERE p.flow_id = w.flow_id
        AND p.since_at <= {{now}} - :least_us
        AND (p.state IN ('PENDING', 'IN_PROGRESS')
            OR (p.state IN ('WAITING', 'BLOCKED')
                AND (p.look_at IS NULL OR p.look_at <= {{now}} - :overdue_us))))
ORDER BY w.deadline_at, w.flow_id LIMIT :n;

-- name: flow_rows_many
-- Flows by id as they are, and the earlier flow that each waits for.
-- scope: system (the ladder serves all customers)
SELECT {{flow_columns}}, {{flow_ahead}}
FROM flows w {{flow_joins}}
WHERE w.flow_id {{any ids}} ORDER BY w.flow_id;

-- name: pass_take
-- Reserve the next pass of a service of the whole database. No row: it is not due, or another
-- process has it. A time that is ahead by more than an interval is one from before the clock was set
-- back.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES (:name, {{now}})
ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE counters.value <= {{now}} - :every_us OR counters.value > {{now}} + :every_us
RETURNING value;
