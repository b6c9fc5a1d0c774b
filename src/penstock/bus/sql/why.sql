-- Reads for `why`: the deliveries of a message or subscription, and what they wait for.

-- fragment: why_columns
d.subscription, d.message_id, d.state, d.attempt, d.due_at, d.until_at, d.holder, d.last_error,
d.ordering_key,
CASE WHEN d.state = 3 THEN (SELECT h.message_id FROM deliveries h
    WHERE h.subscription = d.subscription AND h.ordering_key = d.ordering_key
        AND h.ordering_key IS NOT NULL AND h.state <> 3 LIMIT 1) END

-- name: bus_why_message
-- The deliveries of a message that are not settled.
-- scope: system (the caller may see the subscriptions)
SELECT {{why_columns}} FROM deliveries d
WHERE d.subscription {{any subscriptions}} AND d.message_id = :message_id;

-- name: bus_why_oldest
-- The oldest deliveries of a subscription in one state.
-- scope: system (the caller may see the subscription)
SELECT {{why_columns}} FROM deliveries d
WHERE d.subscription = :subscription AND d.state = :state ORDER BY d.message_id LIMIT :n;

-- name: bus_why_dead
-- The open dead letter of a message in each subscription.
-- scope: system (the caller may see the subscriptions)
SELECT d.subscription, d.dead_letter_id, d.error_type FROM dead_letters d
WHERE d.kind = 'delivery' AND d.status = 'open' AND d.message_id = :message_id
    AND d.subscription {{any subscriptions}}
ORDER BY d.round;

-- name: bus_why_dead_count
-- Open dead letters of a subscription, up to a bound.
-- scope: system (the caller may see the subscription)
SELECT count(*) FROM (SELECT 1 FROM dead_letters d WHERE d.subscription = :subscription
    AND d.kind = 'delivery' AND d.status = 'open' LIMIT :bound) AS b;

-- name: bus_why_alerts
-- Open alerts about subscriptions, and whether their topics are deleted.
-- scope: system (the caller may see the subscriptions)
SELECT s.subscription, t.deleted_at, a.message, a.opened_at
FROM subscriptions s JOIN topics t ON t.topic = s.topic
LEFT JOIN alerts a ON a.subject_kind = 'subscription' AND a.subject = s.subscription
    AND a.state <> 'resolved'
WHERE s.subscription {{any subscriptions}} ORDER BY s.subscription, a.opened_at;
