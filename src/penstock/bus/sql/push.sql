-- Subscriptions with ready deliveries that Penstock pushes or handles itself.

-- name: push_ready
-- Unpaused subscriptions of a kind with ready deliveries, by key, with their customers. A scalar
-- subquery makes this one index probe per subscription, never a scan of the whole backlog.
-- scope: system (the pusher and the binding service serve all customers)
SELECT {{subscription_columns}}, coalesce(c.customer_id, '')
FROM subscriptions s {{subscription_joins}}
LEFT JOIN customers c ON c.customer = s.customer
WHERE s.kind = :kind AND s.deleted_at IS NULL AND NOT s.is_paused AND s.subscription > :after
    AND (SELECT q.message_id FROM deliveries q
        WHERE q.subscription = s.subscription AND q.state = 0
        ORDER BY q.message_id LIMIT 1) IS NOT NULL
ORDER BY s.subscription LIMIT :limit;

-- name: push_email_own
-- Assign an e-mail address to a customer; returns no row if it is already assigned.
-- scope: system (the caller has looked up the customer)
INSERT INTO push_emails (email, customer, created_at) VALUES (:email, :customer, {{now}})
ON CONFLICT (email) DO NOTHING RETURNING email;

-- name: push_email_share
-- Assign an e-mail address to a customer, or to the system if another customer has it.
-- scope: system (operators)
INSERT INTO push_emails (email, customer, created_at) VALUES (:email, :customer, {{now}})
ON CONFLICT (email) DO UPDATE SET customer = 0 WHERE push_emails.customer <> excluded.customer;

-- name: push_email_get
-- The customer's own e-mail address.
-- scope: system (the caller has looked up the customer)
SELECT email FROM push_emails WHERE email = :email AND customer = :customer;
