-- Verification: differences between the journal and the state.

-- name: verify_ends
-- Runs in history that ended in a period.
-- scope: system (operators)
SELECT h.run_id, h.finished_at, h.final_state, h.token FROM history h
WHERE h.run_id {{any ids}} AND h.finished_at >= :since AND h.finished_at <= :until;

-- name: verify_history_count
-- Number of runs that ended in a period.
-- scope: system (operators)
SELECT count(*) FROM history WHERE finished_at >= :since AND finished_at < :until;

-- name: verify_history_unknown
-- Runs in history whose end is not in the journal.
-- scope: system (operators)
SELECT h.run_id, h.final_state FROM history h
WHERE h.finished_at >= :since AND h.finished_at < :until AND NOT EXISTS (
    SELECT 1 FROM journal j WHERE j.subject = h.run_id AND j.kind = 'run' AND j.action = 'ended')
LIMIT :limit;

-- name: verify_run_entries
-- Number of creations and ends of runs in the journal.
-- scope: system (operators)
SELECT j.subject, sum(CASE WHEN j.action = 'created' THEN 1 ELSE 0 END),
    sum(CASE WHEN j.action = 'ended' THEN 1 ELSE 0 END)
FROM journal j WHERE j.subject {{any ids}} AND j.kind = 'run' GROUP BY j.subject;

-- name: verify_run_live
-- The given runs that are live.
-- scope: system (operators)
SELECT r.run_id FROM runs r WHERE r.run_id {{any ids}};

-- name: verify_live
-- Live runs in pages, with the number of their creations and ends in the journal.
-- scope: system (operators)
SELECT r.run_id, r.state, r.created_at,
    (SELECT count(*) FROM journal j
        WHERE j.subject = r.run_id AND j.kind = 'run' AND j.action = 'created'),
    (SELECT count(*) FROM journal j
        WHERE j.subject = r.run_id AND j.kind = 'run' AND j.action = 'ended')
FROM runs r WHERE r.run_id > :after ORDER BY r.run_id LIMIT :limit;

-- name: verify_fired_twice
-- Occurrences of configs that started a processor more than once.
-- scope: system (operators)
SELECT u.config_id, u.slot, min(u.run_id), max(u.run_id), count(*) FROM (
    SELECT config_id, slot, processor, item_key, mode, run_id FROM runs
    WHERE trigger_source = 'scheduler' AND attempt = 1 AND config_id IS NOT NULL
    UNION ALL
    SELECT config_id, slot, processor, item_key, mode, run_id FROM history
    WHERE trigger_source = 'scheduler' AND attempt = 1 AND config_id IS NOT NULL) AS u
GROUP BY u.config_id, u.slot, u.processor, u.item_key, u.mode HAVING count(*) > 1 LIMIT :limit;

-- name: verify_flows
-- Flows in pages, with the number of their openings and ends in the journal.
-- scope: system (operators)
SELECT w.flow_id, w.state, w.ended_at IS NULL, w.created_at,
    (SELECT count(*) FROM journal j
        WHERE j.subject = w.flow_id AND j.kind = 'flow' AND j.action = 'opened'),
    (SELECT count(*) FROM journal j
        WHERE j.subject = w.flow_id AND j.kind = 'flow' AND j.action = 'ended')
FROM flows w WHERE w.flow_id > :after ORDER BY w.flow_id LIMIT :limit;

-- name: verify_triggers
-- The starts of phases of flows.
-- scope: system (operators)
SELECT t.flow_id, t.phase, t.processor FROM triggers t WHERE t.flow_id {{any ids}};

-- name: verify_trigger_entries
-- The journal's entries of starts of phases of flows.
-- scope: system (operators)
SELECT j.subject, j.detail FROM journal j
WHERE j.subject {{any ids}} AND j.kind = 'flow' AND j.action = 'triggered';

-- name: verify_dead_runs
-- Dead runs without a dead letter.
-- scope: system (operators)
SELECT h.run_id FROM history h
WHERE h.finished_at >= :since AND h.is_dead AND NOT EXISTS (
    SELECT 1 FROM dead_letters d WHERE d.kind = 'run' AND d.subject = h.run_id)
LIMIT :limit;

-- name: verify_deliveries
-- Deliveries that wait although the same delivery was settled.
-- scope: system (operators)
SELECT s.name, d.message_id FROM deliveries d
    JOIN settled e ON e.message_id = d.message_id AND e.subscription = d.subscription
        AND e.round = d.round
    JOIN subscriptions s ON s.subscription = d.subscription
LIMIT :limit;

-- name: verify_completions
-- Runs of flows that ended without a retry and without a completion of their processor.
-- scope: system (operators)
SELECT h.run_id, h.flow_id FROM history h {{lite:CROSS}} JOIN flows w ON w.flow_id = h.flow_id
WHERE h.finished_at >= :since AND NOT h.was_retried AND h.item_key = ''
    AND NOT EXISTS (
        SELECT 1 FROM completions c WHERE c.flow_id = h.flow_id AND c.processor = h.processor)
LIMIT :limit;

-- name: verify_messages
-- Messages without a delivery to a subscription that had no filter and was not changed since they
-- were published.
-- scope: system (operators)
SELECT s.name, m.message_id FROM subscriptions s
    {{lite:CROSS}} JOIN messages m ON m.topic = s.topic AND m.published_at >= :since
        AND m.published_at > s.created_at + :settling_us
WHERE s.deleted_at IS NULL AND s.filter IS NULL AND s.version = 1
    AND NOT EXISTS (SELECT 1 FROM deliveries d
        WHERE d.subscription = s.subscription AND d.message_id = m.message_id)
    AND NOT EXISTS (SELECT 1 FROM settled e
        WHERE e.message_id = m.message_id AND e.subscription = s.subscription)
LIMIT :limit;
