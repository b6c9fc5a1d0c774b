-- Which subscriptions have something that the house itself posts or serves.

-- name: push_ready
-- Subscriptions of a kind with something ready, by number, with whose they are. A scalar look, so that it
-- is one probe of an index for each of them, never a walk over everything that waits.
-- scope: system (the pusher and the binder serve everybody)
SELECT {{subscription_columns}}, coalesce(c.customer_id, '')
FROM subscriptions s {{subscription_joins}}
LEFT JOIN customers c ON c.customer = s.customer
WHERE s.kind = :kind AND s.deleted_at IS NULL AND NOT s.is_paused AND s.subscription > :after
    AND (SELECT q.message_id FROM deliveries q
        WHERE q.subscription = s.subscription AND q.state = 0
        ORDER BY q.message_id LIMIT 1) IS NOT NULL
ORDER BY s.subscription LIMIT :limit;
