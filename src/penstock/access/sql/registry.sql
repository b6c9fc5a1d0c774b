-- Names and their numeric keys: customers, pools, pipelines, processors.

-- name: customer_ensure_many
-- Keys of customers by name; missing customers are created.
-- scope: system (creates the customer rows themselves)
-- batch: customer_id text
INSERT INTO customers (customer_id, created_at)
SELECT DISTINCT batch.customer_id, {{now}} FROM {{batch}} WHERE TRUE ORDER BY 1
ON CONFLICT (customer_id) DO NOTHING;
SELECT c.customer, c.customer_id FROM {{batch}} JOIN customers c ON c.customer_id = batch.customer_id;

-- name: customer_get
-- The key of a customer by name.
-- scope: system (looks up a customer)
SELECT customer FROM customers WHERE customer_id = :customer_id;

-- name: pool_ensure
-- The key of a worker pool; a missing pool is created.
-- scope: system (pools have no customer)
INSERT INTO pools (name) VALUES (:name) ON CONFLICT (name) DO NOTHING;
SELECT pool FROM pools WHERE name = :name;

-- name: pipeline_put
-- Register or update a pipeline declaration.
-- scope: system (declarations have no customer)
INSERT INTO pipelines (name, digest, definition, has_flow, partition_rule, updated_at)
VALUES (:name, :digest, :definition, :has_flow, :partition_rule, {{now}})
ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, definition = excluded.definition,
    has_flow = excluded.has_flow, partition_rule = excluded.partition_rule, updated_at = excluded.updated_at
RETURNING pipeline;

-- name: pipeline_get
-- A registered pipeline by name.
-- scope: system (declarations have no customer)
SELECT pipeline, digest, definition, has_flow FROM pipelines WHERE name = :name;

-- name: pipeline_list
-- Every registered pipeline.
-- scope: system (declarations have no customer)
SELECT pipeline, name, digest, definition, has_flow, sole_customer FROM pipelines
ORDER BY name LIMIT 10000;

-- name: pipeline_sole_get
-- The customer that claimed a pipeline.
-- scope: system (declarations have no customer)
SELECT sole_customer FROM pipelines WHERE pipeline = :pipeline;

-- name: pipeline_claim
-- The customer that a pipeline belongs to, which is the first one to use it. The row lock makes two
-- first customers agree on one of them.
-- scope: system (the caller has looked up the customer)
UPDATE pipelines SET sole_customer = coalesce(sole_customer, :customer) WHERE pipeline = :pipeline
RETURNING sole_customer;

-- name: pipeline_sole_put
-- Set the only customer of a pipeline.
-- scope: system (registration serves all customers)
UPDATE pipelines SET sole_customer = :customer
WHERE pipeline = :pipeline AND coalesce(sole_customer, 0) <> :customer;

-- name: processor_retire
-- Retire the processors of a pipeline; registration revives those that are still declared.
-- scope: system (declarations have no customer)
UPDATE processors SET is_current = FALSE WHERE pipeline = :pipeline;

-- name: processor_put
-- Register or update one processor of a pipeline.
-- scope: system (declarations have no customer)
INSERT INTO processors (pipeline, phase, name, pool, is_entry, is_current, max_execution_us, retry,
    rate_second, rate_gb, limits, endpoint, expires_us, entity_role)
VALUES (:pipeline, :phase, :name, :pool, :is_entry, TRUE, :max_execution_us, :retry,
    :rate_second, :rate_gb, :limits, :endpoint, :expires_us, :entity_role)
ON CONFLICT (pipeline, phase, name) DO UPDATE SET pool = excluded.pool,
    is_entry = excluded.is_entry, is_current = TRUE,
    max_execution_us = excluded.max_execution_us, retry = excluded.retry,
    rate_second = excluded.rate_second, rate_gb = excluded.rate_gb, limits = excluded.limits,
    endpoint = excluded.endpoint, expires_us = excluded.expires_us,
    entity_role = excluded.entity_role
RETURNING processor;

-- name: processor_list
-- Every registered processor with its pipeline's and pool's names.
-- scope: system (declarations have no customer)
SELECT p.processor, l.pipeline, l.name, p.phase, p.name, o.name, p.pool, p.is_entry, p.is_current,
    p.max_execution_us, p.entity_role
FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline JOIN pools o ON o.pool = p.pool
ORDER BY p.processor LIMIT 100000;

-- name: topic_ensure
-- Create a system topic: from now on its messages are written to the outbox.
-- scope: system (system topics have no customer)
INSERT INTO topics (name, created_at) VALUES (:topic, {{now}}) ON CONFLICT (customer, name) DO NOTHING;

-- name: customer_names
-- Names of customers by key.
-- scope: system (the caller serves those customers)
SELECT customer, customer_id FROM customers WHERE customer {{any ids}};
