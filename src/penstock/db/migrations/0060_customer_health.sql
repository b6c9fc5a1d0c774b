-- migration: customer_health
-- breaking: no
-- The health and the next start of each customer, stored, so that lists of customers are ordered and
-- filtered by index. A service refreshes both; a new customer is well until then.

-- both
ALTER TABLE customers ADD COLUMN health_rank smallint NOT NULL DEFAULT 9;
ALTER TABLE customers ADD COLUMN next_run_time bigint;
CREATE INDEX customers_by_health ON customers (health_rank, customer_id);
CREATE INDEX customers_by_next_start ON customers (next_run_time, customer_id)
    WHERE next_run_time IS NOT NULL;
CREATE INDEX anomalies_open_of_customer ON anomalies (customer)
    WHERE ended_at IS NULL AND measure = 'duration';
CREATE INDEX configs_off ON configs (config_id) WHERE NOT is_active;
