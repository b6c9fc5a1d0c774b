-- Settings of customers: their weight and their maximum number of runs.

-- name: customer_rows
-- Customers with their settings.
-- scope: system (the caller has looked up the customers)
SELECT c.customer, c.customer_id, coalesce(s.weight, 1.0), s.concurrency, c.created_at, s.updated_at,
    s.updated_by, s.start_tolerance_us
FROM customers c LEFT JOIN customer_settings s ON s.customer = c.customer
WHERE c.customer {{any ids}};

-- name: customer_settings_lock
-- The settings of a customer, locked, with the defaults if it had none.
-- scope: system (only callers that serve all customers change settings)
INSERT INTO customer_settings (customer, updated_at, updated_by)
VALUES (:customer, {{now}}, :actor) ON CONFLICT (customer) DO NOTHING;
SELECT weight, concurrency, start_tolerance_us FROM customer_settings WHERE customer = :customer
{{pg:FOR NO KEY UPDATE}};

-- name: customer_settings_put
-- Change the settings of a customer. The admitter applies them to runs that wait.
-- scope: system (only callers that serve all customers change settings)
UPDATE customer_settings SET weight = :weight, stride = :stride, concurrency = :concurrency,
    start_tolerance_us = :start_tolerance_us,
    rerank_after = CASE WHEN stride = :stride THEN rerank_after ELSE 0 END,
    rerank_to = CASE WHEN stride = :stride THEN rerank_to ELSE 0 END,
    capped_at = CASE WHEN :has_new_maximum THEN {{now}} ELSE capped_at END,
    updated_at = {{now}}, updated_by = :actor
WHERE customer = :customer;
