-- Runs that wait for the gate of their processor (admission 5).

-- name: run_insert_gated
-- Insert runs that wait for their gate: neither ranked nor announced before it lets them start.
-- Returns their ids in batch order.
-- scope: system (the batch names its customers)
-- batch: customer bigint, processor bigint, config_id bigint, flow_id bigint, partition text,
--   mode text, slot bigint, scheduled_time bigint, priority smallint, attempt smallint,
--   max_execution_us bigint, sla_us bigint, ordering_key text, parameters text,
--   correlation_id text, parent_run_id bigint, root_run_id bigint, trigger_source text,
--   trigger_message_id text, item_key text, item text, expires_us bigint
INSERT INTO runs ({{insert_columns}})
SELECT g.customer, g.config_id, g.processor, g.pool, g.flow_id, g.partition, g.mode, g.slot,
    g.scheduled_time, g.priority, g.priority, 0, 'PENDING', 5, g.at, g.attempt,
    g.max_execution_us, g.sla_us, g.ordering_key, g.parameters, g.correlation_id,
    g.parent_run_id, g.root_run_id, g.stales, g.trigger_source, g.trigger_message_id, g.at,
    g.item_key, g.item, g.expires_us
FROM ({{given_from_batch}}) AS g ORDER BY g.ord
RETURNING run_id;

-- name: run_gate_pass
-- The gate lets runs start: they are admitted like any other run, behind earlier runs of their
-- ordering key and behind one that is admitted.
-- scope: system (the caller holds their gates)
-- batch: run_id bigint
UPDATE runs SET state_at = {{now}}, admission = CASE
    WHEN runs.ordering_key IS NOT NULL AND EXISTS (SELECT 1 FROM runs r
        WHERE r.ordering_key = runs.ordering_key AND r.run_id <> runs.run_id
            AND ({{key_order}} < runs.run_id OR {{key_is_taken}})) THEN 3 ELSE 1 END
FROM {{batch}} WHERE runs.run_id = batch.run_id AND runs.admission = 5;
