-- Everything that belongs to one cause: correlation ids, flows, runs and messages. Reads by index,
-- bounded.

-- name: trace_of_correlations
-- Flows, flows with executions, single runs and messages under correlation ids.
SELECT 'flow', w.flow_id, w.correlation_id FROM (
    SELECT f.flow_id, f.correlation_id FROM flows f WHERE f.correlation_id {{any correlations}}
        AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer)
    ORDER BY f.flow_id DESC LIMIT :limit) AS w
UNION ALL
SELECT 'flow', e.flow_id, e.correlation_id FROM (
    SELECT DISTINCT o.flow_id, o.correlation_id FROM execution_log o
    WHERE o.correlation_id {{any correlations}}
        AND (CAST(:customer AS bigint) IS NULL OR o.customer = :customer) LIMIT :limit) AS e
UNION ALL
SELECT 'run', r.run_id, r.correlation_id FROM (
    SELECT q.run_id, q.correlation_id FROM runs q WHERE q.correlation_id {{any correlations}}
        AND q.correlation_id IS NOT NULL AND q.flow_id IS NULL
        AND (CAST(:customer AS bigint) IS NULL OR q.customer = :customer) LIMIT :limit) AS r
UNION ALL
SELECT 'ended', h.run_id, h.correlation_id FROM (
    SELECT k.run_id, k.correlation_id FROM history k
    WHERE k.correlation_id {{pg:COLLATE "C"}} {{any correlations}}
        AND k.correlation_id IS NOT NULL AND k.flow_id IS NULL
        AND (CAST(:customer AS bigint) IS NULL OR k.customer = :customer) LIMIT :limit) AS h
UNION ALL
SELECT 'message', m.message_id, m.correlation_id FROM (
    SELECT g.message_id, g.correlation_id FROM messages g
    WHERE g.correlation_id {{any correlations}} AND g.correlation_id IS NOT NULL
        AND (CAST(:customer AS bigint) IS NULL OR g.customer = :customer) LIMIT :limit) AS m
UNION ALL
SELECT 'dead_letter', d.dead_letter_id, d.correlation_id FROM (
    SELECT b.dead_letter_id, b.correlation_id FROM dead_letters b
    WHERE b.correlation_id {{any correlations}} AND b.correlation_id IS NOT NULL
        AND (CAST(:customer AS bigint) IS NULL OR b.customer = :customer) LIMIT :limit) AS d;

-- name: trace_of_messages
-- Flows and runs that messages caused, with their correlation ids and the first attempts of runs.
SELECT 'flow', w.flow_id, w.correlation_id, NULL FROM (
    SELECT f.flow_id, f.correlation_id FROM flows f WHERE f.message_id {{any messages}}
        AND f.message_id IS NOT NULL
        AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer) LIMIT :limit) AS w
UNION ALL
SELECT 'run', r.run_id, r.correlation_id, r.root_run_id FROM (
    SELECT q.run_id, q.correlation_id, q.root_run_id FROM runs q
    WHERE q.trigger_message_id {{any messages}} AND q.trigger_message_id IS NOT NULL
        AND q.flow_id IS NULL
        AND (CAST(:customer AS bigint) IS NULL OR q.customer = :customer) LIMIT :limit) AS r
UNION ALL
SELECT 'ended', h.run_id, h.correlation_id, h.root_run_id FROM (
    SELECT k.run_id, k.correlation_id, k.root_run_id FROM history k
    WHERE k.trigger_message_id {{any messages}} AND k.trigger_message_id IS NOT NULL
        AND k.flow_id IS NULL
        AND (CAST(:customer AS bigint) IS NULL OR k.customer = :customer) LIMIT :limit) AS h;

-- name: trace_flow_correlation
-- The correlation id and the message of a flow.
SELECT correlation_id, message_id FROM flows WHERE flow_id = :flow_id
    AND (CAST(:customer AS bigint) IS NULL OR customer = :customer);

-- name: trace_message
-- The correlation id of a message, also of one whose content is gone.
SELECT m.correlation_id FROM messages m WHERE m.message_id = :message_id
    AND (CAST(:customer AS bigint) IS NULL OR m.customer = :customer)
UNION ALL
SELECT NULL FROM settled b WHERE b.message_id = :message_id
    AND (CAST(:customer AS bigint) IS NULL OR b.customer = :customer)
LIMIT 1;

-- name: trace_dead_letter
-- The subject of a dead letter.
SELECT d.kind, d.subject, d.message_id, d.correlation_id FROM dead_letters d
WHERE d.dead_letter_id = :dead_letter_id
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer);

-- name: trace_external
-- Flows by the execution id of a report, and messages by the id of their sender.
SELECT 'flow', s.flow_id FROM completions s WHERE s.execution_id = :external_id
    AND (CAST(:customer AS bigint) IS NULL OR s.customer = :customer)
UNION ALL
SELECT 'flow', k.flow_id FROM completion_ids k WHERE k.execution_id = :external_id
    AND (CAST(:customer AS bigint) IS NULL OR k.customer = :customer)
UNION ALL
SELECT 'message', m.message_id FROM topics t {{lite:CROSS}} JOIN publish_marks m
    ON m.topic = t.topic AND m.dedupe_id = :external_id
WHERE CAST(:customer AS bigint) IS NULL OR m.customer = :customer
LIMIT 20;

-- name: trace_messages
-- Messages with their topics, oldest first.
-- scope: system (the caller has found the messages)
SELECT m.message_id, t.name, m.published_at, m.attributes FROM messages m
JOIN topics t ON t.topic = m.topic WHERE m.message_id {{any messages}}
ORDER BY m.message_id LIMIT 200;

-- name: trace_deliveries
-- Deliveries of messages that are not settled.
-- scope: system (the caller has found the messages)
SELECT d.message_id, s.name, d.state, d.attempt, d.due_at, d.until_at, d.last_error, d.born_at
FROM deliveries d JOIN subscriptions s ON s.subscription = d.subscription
WHERE d.message_id {{any messages}} AND d.subscription IN (
    SELECT o.subscription FROM subscriptions o WHERE o.topic IN (
        SELECT m.topic FROM messages m WHERE m.message_id {{any messages}}))
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
ORDER BY d.message_id, s.name LIMIT 200;

-- name: trace_dead_letters
-- Dead letters of causes, runs and messages.
SELECT d.dead_letter_id, d.kind, d.subject, d.message_id, s.name, d.error_type, d.error_details,
    d.attempts, d.died_at, d.status, d.resolution, d.resolved_at, p.phase, p.name
FROM dead_letters d LEFT JOIN subscriptions s ON s.subscription = d.subscription
LEFT JOIN processors p ON p.processor = d.processor
WHERE d.dead_letter_id {{any dead_letters}}
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
ORDER BY d.dead_letter_id LIMIT 200;

-- name: trace_dead_letters_about
-- Dead letters of single runs and of deliveries.
SELECT d.dead_letter_id FROM dead_letters d
WHERE d.kind = 'run' AND d.subject {{any runs}}
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
UNION ALL
SELECT d.dead_letter_id FROM subscriptions s {{lite:CROSS}} JOIN dead_letters d
    ON d.subscription = s.subscription AND d.message_id {{any messages}} AND d.kind = 'delivery'
WHERE s.topic IN (SELECT m.topic FROM messages m WHERE m.message_id {{any messages}})
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
LIMIT 200;
