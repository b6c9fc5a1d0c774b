-- Reports of changed entities, watermarks, and what incremental processors receive.

-- name: entity_change_from_runs
-- Record the reports of runs that just ended, and the missing ones. Only reports of processors
-- before an incremental one wait for an epoch.
-- scope: system (the caller ended the runs)
-- batch: run_id bigint, counts text, unknown text, is_reported boolean
INSERT INTO entity_changes (customer, pipeline, config_id, processor, flow_id, partition, mode,
    run_id, correlation_id, at, epoch, counts, unknown, is_reported)
SELECT h.customer, p.pipeline, coalesce(w.config_id, h.config_id, 0), h.processor, h.flow_id,
    h.partition, h.mode, h.run_id, h.correlation_id, h.finished_at,
    CASE WHEN p.entity_role > 1 AND h.flow_id IS NOT NULL THEN NULL ELSE 0 END,
    batch.counts, batch.unknown, batch.is_reported
FROM {{batch}} {{lite:CROSS}} JOIN history h ON h.run_id = batch.run_id
    AND h.finished_at > {{now}} - 3600000000 {{pg:AND h.run_id = ANY(:b_run_id::bigint[])}}
{{lite:CROSS}} JOIN processors p ON p.processor = h.processor
LEFT JOIN flows w ON w.flow_id = h.flow_id
WHERE TRUE ORDER BY h.run_id
RETURNING change_id, run_id, customer;

-- name: entity_change_from_report
-- Record the report of an execution outside Penstock.
-- scope: system (the caller has checked the flow)
INSERT INTO entity_changes (customer, pipeline, config_id, processor, flow_id, partition, mode,
    execution_id, correlation_id, at, epoch, counts, unknown, is_reported)
SELECT w.customer, w.pipeline, w.config_id, p.processor, w.flow_id, w.partition, w.mode,
    CAST(:execution_id AS text), w.correlation_id, {{now}},
    CASE WHEN p.entity_role > 1 THEN NULL ELSE 0 END,
    CAST(:counts AS text), CAST(:unknown AS text), :is_reported
FROM flows w JOIN processors p ON p.processor = :processor
WHERE w.flow_id = :flow_id AND (:is_reported OR p.entity_role >= 4)
    AND NOT EXISTS (SELECT 1 FROM entity_changes c WHERE c.flow_id = w.flow_id
        AND c.processor = p.processor AND c.execution_id = CAST(:execution_id AS text))
RETURNING change_id, customer;

-- name: entity_ids_put_many
-- Insert the ids of reports.
-- scope: system (the batch names its customers)
-- batch: change_id bigint, kind text, entity text, customer bigint, is_number boolean
INSERT INTO entity_ids (change_id, kind, entity, customer, is_number)
SELECT batch.change_id, batch.kind, batch.entity, batch.customer, batch.is_number
FROM {{batch}} WHERE TRUE ORDER BY ord;

-- name: entity_epoch_next_many
-- Number the next starts of incremental processors; concurrent starts of the same flows' config
-- wait here, so that the numbers follow the commits.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, config_id bigint
INSERT INTO entity_epochs (customer, pipeline, config_id, epoch)
SELECT batch.customer, batch.pipeline, batch.config_id, 1 FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3
ON CONFLICT (customer, pipeline, config_id) DO UPDATE SET epoch = entity_epochs.epoch + 1
RETURNING customer, pipeline, config_id, epoch, pruned_to;

-- name: entity_change_stamp_many
-- Assign the number of this start to the reports that committed since the last one.
-- scope: system (the caller locked the epochs)
-- batch: customer bigint, pipeline bigint, config_id bigint, epoch bigint
UPDATE entity_changes SET epoch = batch.epoch FROM {{batch}}
WHERE entity_changes.customer = batch.customer AND entity_changes.pipeline = batch.pipeline
    AND entity_changes.config_id = batch.config_id AND entity_changes.epoch IS NULL;

-- name: entity_watermark_get_many
-- The watermarks of processors.
-- scope: system (the batch names its customers)
-- batch: input bigint, customer bigint, pipeline bigint, config_id bigint, processor bigint,
--   partition text
SELECT batch.input, m.epoch, m.signature FROM {{batch}} {{lite:CROSS}} JOIN entity_watermarks m
    ON m.customer = batch.customer AND m.pipeline = batch.pipeline
    AND m.config_id = batch.config_id AND m.processor = batch.processor
    AND m.partition = batch.partition;

-- name: entity_change_list
-- The reports of processors after a watermark, up to a start; with a partition, only of its flows.
-- scope: system (the batch names its customers)
-- batch: input bigint, customer bigint, pipeline bigint, config_id bigint, partition text,
--   after_epoch bigint, epoch bigint, processor bigint
SELECT batch.input, c.change_id, c.processor, c.counts, c.unknown, c.is_reported
FROM {{batch}} {{lite:CROSS}} JOIN entity_changes c
    ON c.customer = batch.customer AND c.pipeline = batch.pipeline
    AND c.config_id = batch.config_id AND c.epoch > batch.after_epoch AND c.epoch <= batch.epoch
    AND c.epoch > 0 AND c.processor = batch.processor
WHERE batch.partition = '' OR c.partition = batch.partition
ORDER BY 1, 2 LIMIT :n;

-- name: entity_count
-- Count the distinct entities of reports, up to a limit.
-- scope: system (the caller may see the reports)
SELECT count(*) FROM (
    SELECT DISTINCT kind, entity FROM entity_ids
    WHERE change_id {{any ids}} AND kind {{any kinds}} LIMIT :n) AS found;

-- name: entity_input_put_many
-- Store what processors of flows receive. A processor that starts twice in a flow keeps the first.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, processor bigint, customer bigint, pipeline bigint, config_id bigint,
--   partition text, epoch bigint, signature text, kinds text, changes text, reason text,
--   moves boolean, chosen text
INSERT INTO entity_inputs (flow_id, processor, customer, pipeline, config_id, partition, epoch,
    signature, kinds, changes, reason, moves, chosen, at)
SELECT batch.flow_id, batch.processor, batch.customer, batch.pipeline, batch.config_id,
    batch.partition, batch.epoch, batch.signature, batch.kinds, batch.changes, batch.reason,
    batch.moves, batch.chosen, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (flow_id, processor) DO NOTHING;

-- name: entity_input_list
-- What the incremental processors of flows receive.
-- scope: system (the caller holds runs of the flows or may see them)
SELECT i.flow_id, i.processor, i.kinds, i.changes, i.reason, i.moves, p.phase, p.name, i.chosen
FROM entity_inputs i JOIN processors p ON p.processor = i.processor
WHERE i.flow_id {{any ids}} ORDER BY i.flow_id, i.processor;

-- name: entity_change_get_many
-- The partitions of reports that still exist, and their number of ids by kind.
-- scope: system (the caller may see the reports)
SELECT change_id, partition, counts FROM entity_changes WHERE change_id {{any ids}};

-- name: entity_ids_list
-- The ids of reports, by kind.
-- scope: system (the caller may see the reports)
SELECT change_id, kind, entity, is_number FROM entity_ids WHERE change_id {{any ids}}
ORDER BY change_id, kind, entity LIMIT :n;

-- name: entity_watermark_move_many
-- Move the watermarks of processors that succeeded to what their runs received.
-- scope: system (the caller recorded the completions)
-- batch: flow_id bigint, processor bigint
INSERT INTO entity_watermarks (customer, pipeline, config_id, processor, partition, epoch,
    signature, flow_id, at)
SELECT g.customer, g.pipeline, g.config_id, g.processor, g.partition, g.epoch, g.signature,
    g.flow_id, {{now}}
FROM (SELECT i.*, row_number() OVER (PARTITION BY i.customer, i.pipeline, i.config_id, i.processor,
        i.partition ORDER BY i.epoch DESC, i.flow_id DESC) AS place
    FROM {{batch}} {{lite:CROSS}} JOIN entity_inputs i
        ON i.flow_id = batch.flow_id AND i.processor = batch.processor
    WHERE i.moves) AS g
WHERE g.place = 1 ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (customer, pipeline, config_id, processor, partition) DO UPDATE SET
    epoch = excluded.epoch, signature = excluded.signature, flow_id = excluded.flow_id,
    at = excluded.at
WHERE entity_watermarks.epoch < excluded.epoch;

-- name: entity_change_of_flows
-- The reports of processors in flows.
-- scope: system (the caller locked or may see the flows)
SELECT c.flow_id, c.processor, c.change_id, c.counts, c.unknown
FROM entity_changes c WHERE c.flow_id {{any ids}} AND c.is_reported ORDER BY c.change_id;

-- name: entity_changes_prune
-- Delete old reports with their ids, record how far they reached, and delete old watermarks of
-- partitions.
-- scope: system (retention)
UPDATE entity_epochs SET pruned_to = g.reach FROM (
    SELECT c.customer, c.pipeline, c.config_id, max(coalesce(c.epoch, s.epoch + 1)) AS reach
    FROM entity_changes c JOIN entity_epochs s ON s.customer = c.customer
        AND s.pipeline = c.pipeline AND s.config_id = c.config_id
    WHERE c.change_id IN (
        SELECT change_id FROM entity_changes WHERE at < :before ORDER BY at, change_id LIMIT :n)
    GROUP BY c.customer, c.pipeline, c.config_id) AS g
WHERE entity_epochs.customer = g.customer AND entity_epochs.pipeline = g.pipeline
    AND entity_epochs.config_id = g.config_id AND entity_epochs.pruned_to < g.reach;
DELETE FROM entity_ids WHERE change_id IN (
    SELECT change_id FROM entity_changes WHERE at < :before ORDER BY at, change_id LIMIT :n);
DELETE FROM entity_watermarks WHERE (customer, pipeline, config_id, processor, partition) IN (
    SELECT customer, pipeline, config_id, processor, partition FROM entity_watermarks
    WHERE partition <> '' AND at < :before ORDER BY at LIMIT :n);
DELETE FROM entity_changes WHERE change_id IN (
    SELECT change_id FROM entity_changes WHERE at < :before ORDER BY at, change_id LIMIT :n);

-- name: entity_change_of_entity
-- The newest reports that name an entity.
-- scope: system (the caller has looked up the customer)
SELECT c.change_id, c.flow_id, l.name, c.pipeline, c.config_id, p.phase, p.name, c.partition,
    c.mode, c.run_id, c.execution_id, c.at, c.epoch
FROM entity_ids e {{lite:CROSS}} JOIN entity_changes c ON c.change_id = e.change_id
JOIN processors p ON p.processor = c.processor JOIN pipelines l ON l.pipeline = c.pipeline
WHERE e.customer = :customer AND e.kind = :kind AND e.entity = :entity
    AND (CAST(:partition AS text) IS NULL OR c.partition = :partition)
    AND (CAST(:pipeline AS bigint) IS NULL OR c.pipeline = :pipeline)
ORDER BY e.change_id DESC LIMIT :n;

-- name: entity_watermark_of_flow
-- The watermarks of the incremental processors of a flow's config, by phase and name.
-- scope: system (the caller may see the flow)
SELECT p.phase, p.name, m.epoch, m.flow_id FROM entity_watermarks m
JOIN processors p ON p.processor = m.processor
WHERE m.customer = :customer AND m.pipeline = :pipeline AND m.config_id = :config_id
    AND m.partition IN ('', CAST(:partition AS text));
