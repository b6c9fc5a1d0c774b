-- migration: run_health
-- breaking: no
-- Sums of SLA compliance, leaked executions of workers, and an index of dead runs by cause.

-- both
ALTER TABLE customer_days ADD COLUMN sla_runs bigint NOT NULL DEFAULT 0;
ALTER TABLE customer_days ADD COLUMN sla_kept bigint NOT NULL DEFAULT 0;
UPDATE customer_days SET sla_runs = k.sla_runs, sla_kept = k.sla_kept
FROM (
    SELECT h.customer, h.slot - h.slot % 86400000000 AS day_at, h.provider, h.final_state,
        sum(CASE WHEN h.final_state <> 'CANCELLED' THEN 1 ELSE 0 END) AS sla_runs,
        sum(CASE WHEN h.sla_met AND h.final_state = 'COMPLETED' THEN 1 ELSE 0 END) AS sla_kept
    FROM history h
    WHERE h.sla_met IS NOT NULL AND NOT h.was_retried
        AND h.finished_at <= coalesce((SELECT value FROM counters WHERE name = 'folded_to'), 0)
    GROUP BY 1, 2, 3, 4) AS k
WHERE customer_days.customer = k.customer AND customer_days.day_at = k.day_at
    AND customer_days.provider = k.provider AND customer_days.final_state = k.final_state;

-- Executions of a worker whose run was ended while its code keeps running.
ALTER TABLE sessions ADD COLUMN leaked integer NOT NULL DEFAULT 0;

-- Dead runs by cause: many configs that fail in the same way have a common one.
CREATE INDEX dead_letters_by_error ON dead_letters (processor, error_type, died_at)
    WHERE kind = 'run';
