-- The end of a run: the only statement for completed, failed, timed out and cancelled runs, called
-- by workers and the sweeper.

-- fragment: is_stopped
-- Whether a failed run that would be retried was asked to stop, or its flow closed: it is cancelled.
(x.retry_delay_us IS NOT NULL AND r.cancel_requested_by IS NOT NULL)

-- fragment: gone_columns
-- A live row and its result, as one wide row.
r.run_id, r.customer, r.config_id, r.processor, r.pool, r.flow_id, r.partition, r.mode, r.slot,
r.scheduled_time, r.priority, r.state, r.session_id, r.claimed_by, r.claimed_at,
coalesce(r.started_at, {{now}} - x.duration_us) AS started_at, r.token, r.lapses, r.attempt,
r.max_execution_us, r.sla_us, r.ordering_key, r.parameters, r.correlation_id, r.parent_run_id,
r.root_run_id, r.stales, r.trigger_source, r.trigger_message_id, r.created_at,
r.cancel_requested_by, r.cancel_reason, r.limits, r.item_key, r.item, r.expires_us,
CASE WHEN {{is_stopped}} THEN 'CANCELLED' ELSE x.final_state END AS final_state,
CASE WHEN {{is_stopped}} THEN NULL ELSE x.status END AS status, x.error_type, x.error_details,
x.result, x.records, x.bytes, x.stages,
CASE WHEN {{is_stopped}} THEN NULL ELSE x.retry_delay_us END AS retry_delay_us,
x.retry_max_execution_us, x.is_dead, x.is_stale, x.actor,
CASE WHEN {{is_stopped}} THEN 'failed after a request to stop: not retried' ELSE x.why END AS why,
{{now}} AS finished_at

-- fragment: breach_us
CASE WHEN g.sla_us IS NULL THEN 0
    ELSE greatest(coalesce(g.started_at, g.finished_at) - g.slot - g.sla_us, 0) END

-- fragment: history_from_gone
INSERT INTO history (run_id, customer, config_id, processor, flow_id, partition, mode, provider,
    slot, scheduled_time, priority, created_at, claimed_at, claimed_by, started_at, finished_at,
    final_state, status, token, attempt, lapses, was_retried, is_dead, parent_run_id, root_run_id,
    records, bytes, stages, result, error_type, error_details, sla_met, sla_breach_us, cost,
    parameters, ordering_key, correlation_id, trigger_source, trigger_message_id, item_key, item)
SELECT g.run_id, g.customer, g.config_id, g.processor, g.flow_id, g.partition, g.mode,
    coalesce(f.provider, ''), g.slot, g.scheduled_time, g.priority, g.created_at, g.claimed_at,
    g.claimed_by, g.started_at, g.finished_at, g.final_state, g.status, g.token, g.attempt,
    g.lapses, g.retry_delay_us IS NOT NULL, g.is_dead, g.parent_run_id, g.root_run_id, g.records,
    g.bytes, g.stages, g.result, g.error_type, g.error_details,
    CASE WHEN g.sla_us IS NOT NULL THEN {{breach_us}} = 0 END, {{breach_us}},
    p.rate_second * (g.finished_at - coalesce(g.started_at, g.finished_at)) / 1000000.0
        + p.rate_gb * coalesce(g.bytes, 0) / 1000000000.0,
    g.parameters, g.ordering_key, g.correlation_id, g.trigger_source, g.trigger_message_id,
    g.item_key, g.item
FROM gone g JOIN processors p ON p.processor = g.processor
    LEFT JOIN configs f ON f.config_id = g.config_id

-- fragment: journal_from_gone
-- The entry of the end may include the claim: a run that started was RUNNING, one that was never
-- claimed (cancelled in the queue) was PENDING. A cancel has the requester as actor, with the
-- reason given.
INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, token, why)
SELECT g.finished_at, 'run', g.run_id, g.customer, 'ended',
    CASE WHEN g.final_state = 'CANCELLED' THEN coalesce(g.cancel_requested_by, g.actor)
        ELSE g.actor END,
    CASE WHEN g.state = 'CLAIMED' AND g.started_at IS NOT NULL THEN 'RUNNING'
        WHEN g.state = 'CLAIMED' AND g.claimed_at IS NULL THEN 'PENDING'
        ELSE g.state END,
    g.final_state, g.token,
    CASE WHEN g.final_state = 'CANCELLED' THEN coalesce(g.cancel_reason, g.why) ELSE g.why END
FROM gone g

-- fragment: retry_values
g.customer, g.config_id, g.processor, g.pool, g.flow_id, g.partition, g.mode, g.slot,
    g.finished_at + g.retry_delay_us, g.priority, g.priority, 0, 'PENDING', 1, g.finished_at,
    g.attempt + 1, coalesce(g.retry_max_execution_us, g.max_execution_us), g.sla_us,
    g.ordering_key, g.parameters, g.correlation_id, g.run_id, coalesce(g.root_run_id, g.run_id),
    g.stales + CASE WHEN g.is_stale THEN 1 ELSE 0 END, 'retry', g.trigger_message_id,
    g.finished_at, g.item_key, g.item, g.expires_us

-- fragment: sums_from_gone
INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches)
SELECT g.finished_at - g.finished_at % 3600000000, g.final_state, count(*),
    sum(g.finished_at - coalesce(g.started_at, g.finished_at)),
    sum(CASE WHEN {{breach_us}} > 0 THEN 1 ELSE 0 END)
FROM gone g GROUP BY 1, 2

-- fragment: cohorts_from_gone
-- Runs of configs that ended permanently, by occurrence; runs of flows and events belong to none.
INSERT INTO cohort_sums (slot, processor, completed, dead, cancelled, ended_at)
SELECT g.slot, g.processor, sum(CASE WHEN g.final_state = 'COMPLETED' THEN 1 ELSE 0 END),
    sum(CASE WHEN g.is_dead THEN 1 ELSE 0 END),
    sum(CASE WHEN g.final_state = 'COMPLETED' OR g.is_dead THEN 0 ELSE 1 END), max(g.finished_at)
FROM gone g
WHERE g.config_id IS NOT NULL AND g.flow_id IS NULL AND g.trigger_message_id IS NULL
    AND g.retry_delay_us IS NULL
GROUP BY g.slot, g.processor

-- fragment: announced_from_gone
-- The completion of a pipeline of one processor, which has no flow, if its topic exists. The
-- publisher reads the run. The first condition is evaluated once: without topics nothing is read.
INSERT INTO outbox (topic, payload, created_at)
SELECT t.name, '{"ended_run": ' || CAST(g.run_id AS text) || '}', g.finished_at
FROM gone g {{lite:CROSS}} JOIN processors p ON p.processor = g.processor
    {{lite:CROSS}} JOIN pipelines l ON l.pipeline = p.pipeline AND NOT l.has_flow
    {{lite:CROSS}} JOIN topics t ON t.customer = 0 AND t.name = l.name || '.' || p.phase || '.complete'
WHERE (SELECT e.topic FROM topics e WHERE e.customer = 0 LIMIT 1) IS NOT NULL
    AND g.flow_id IS NULL AND g.retry_delay_us IS NULL

-- fragment: dead_from_gone
INSERT INTO dead_letters (kind, subject, customer, processor, config_id, partition,
    correlation_id, error_type, error_details, attempts, died_at)
SELECT 'run', g.run_id, g.customer, g.processor, g.config_id, g.partition, g.correlation_id,
    coalesce(g.error_type, 'UNKNOWN'), g.error_details, g.attempt, g.finished_at
FROM gone g WHERE g.is_dead

-- fragment: first_source
-- What started the first attempt of a retry. PostgreSQL reads it in a function: a subquery would
-- lock every partition of history in each transaction that ends runs.
{{pg:run_first_source(g.root_run_id, g.slot - 86400000000)}}{{lite:(SELECT h.trigger_source
    FROM history h WHERE h.run_id = g.root_run_id AND h.finished_at > g.slot - 86400000000)}}

-- fragment: is_failed_start
-- Whether a run's end makes the start of its config (by schedule or message) a failed one. Backfills,
-- replays, starts by hand and retries by hand do not count, and neither do items. Only dead runs are
-- looked up: a run of a flow by its flow, an automatic retry by the first attempt, which ended after
-- the scheduled time.
CASE WHEN NOT g.is_dead OR g.config_id IS NULL OR g.item_key <> '' THEN FALSE
    WHEN g.flow_id IS NOT NULL THEN EXISTS (SELECT 1 FROM flows w
        WHERE w.flow_id = g.flow_id AND w.trigger_source IN ('scheduler', 'event'))
    WHEN g.trigger_source = 'retry' THEN coalesce({{first_source}}, '') IN ('scheduler', 'event')
    ELSE g.trigger_source IN ('scheduler', 'event') END

-- fragment: is_good_start
-- Whether a run's end completes the start of its config. A flow does so where it ends; a retry is
-- an attempt of its start.
(g.final_state = 'COMPLETED' AND g.flow_id IS NULL
    AND (g.trigger_source IN ('scheduler', 'event') OR g.parent_run_id IS NOT NULL))

-- fragment: health_from_gone
-- failed_flow: the latest flow that counts as a failed start, so that further dead runs of it do
-- not count; 0 without one, -1 if a start completed, which resets the count.
INSERT INTO config_health (config_id, last_run_time, last_run_status, consecutive_failures,
    outcomes, failed_flow)
SELECT h.config_id, max(h.finished_at),
    CASE WHEN max(CASE WHEN h.final_state = 'COMPLETED' THEN 1 ELSE 0 END) = 1 THEN 'COMPLETED'
        ELSE max(h.final_state) END,
    CASE WHEN max(h.is_good) = 1 THEN 0
        ELSE sum(CASE WHEN h.flow_id IS NULL THEN h.is_failed ELSE 0 END)
            + max(CASE WHEN h.flow_id IS NULL THEN 0 ELSE h.is_failed END) END,
    -- One letter: whether a run completed (c), failed permanently (f) or was cancelled (x).
    CASE WHEN max(CASE WHEN h.final_state = 'COMPLETED' THEN 1 ELSE 0 END) = 1 THEN 'c'
        WHEN max(CASE WHEN h.is_dead THEN 1 ELSE 0 END) = 1 THEN 'f'
        WHEN max(CASE WHEN h.final_state = 'CANCELLED' THEN 1 ELSE 0 END) = 1 THEN 'x'
        ELSE '' END,
    CASE WHEN max(h.is_good) = 1 THEN -1
        ELSE max(CASE WHEN h.is_failed = 1 THEN coalesce(h.flow_id, 0) ELSE 0 END) END
FROM (SELECT g.config_id, g.flow_id, g.finished_at, g.final_state, g.is_dead,
        CASE WHEN {{is_failed_start}} THEN 1 ELSE 0 END AS is_failed,
        CASE WHEN {{is_good_start}} THEN 1 ELSE 0 END AS is_good
    FROM gone g WHERE g.config_id IS NOT NULL) AS h
GROUP BY h.config_id ORDER BY h.config_id

-- fragment: health_conflict
ON CONFLICT (config_id) DO UPDATE SET last_run_time = excluded.last_run_time,
    last_run_status = excluded.last_run_status,
    consecutive_failures = CASE
        WHEN excluded.failed_flow < 0 THEN 0
        WHEN excluded.failed_flow > 0 AND excluded.failed_flow <= config_health.failed_flow
            THEN config_health.consecutive_failures + excluded.consecutive_failures - 1
        ELSE config_health.consecutive_failures + excluded.consecutive_failures END,
    failed_flow = greatest(config_health.failed_flow, excluded.failed_flow),
    outcomes = substr(excluded.outcomes || config_health.outcomes, 1, 14)

-- fragment: entity_role_of_gone
-- The role of its processor in incremental cascades; a run that never started changed nothing.
CASE WHEN g.flow_id IS NULL OR (g.claimed_at IS NULL AND g.attempt = 1) THEN 0
    ELSE (SELECT p.entity_role FROM processors p WHERE p.processor = g.processor) END

-- name: run_finish_many [postgres]
-- End runs whose holder's token is current: history, journal, sums, retry or dead letter, health.
-- scope: system (by token, known only to the holder)
-- batch: run_id bigint, token bigint, final_state text, status text, duration_us bigint,
--   error_type text, error_details text, result text, records bigint, bytes bigint, stages text,
--   retry_delay_us bigint, retry_max_execution_us bigint, is_dead boolean, is_stale boolean,
--   actor text, why text
WITH x AS MATERIALIZED (
    SELECT batch.* FROM {{batch}}
), gone AS (
    DELETE FROM runs r USING x
    WHERE r.run_id = x.run_id AND r.run_id = ANY(:b_run_id::bigint[]) AND r.token = x.token
        AND r.state IN ('CLAIMED', 'RUNNING')
    RETURNING {{gone_columns}}
), kept AS (
    {{history_from_gone}}
), noted AS (
    {{journal_from_gone}}
), retried AS (
    INSERT INTO runs ({{insert_columns}})
    SELECT {{retry_values}} FROM gone g WHERE g.retry_delay_us IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING run_id, parent_run_id, customer, created_at
), retry_noted AS (
    INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
    SELECT t.created_at, 'run', t.run_id, t.customer, 'created', 'penstock', 'PENDING', 'retry'
    FROM retried t
), summed AS (
    {{sums_from_gone}}
), counted AS (
    {{cohorts_from_gone}}
), announced AS (
    {{announced_from_gone}}
), dead AS (
    {{dead_from_gone}}
), health AS (
    {{health_from_gone}}
    {{health_conflict}}
    RETURNING config_id, consecutive_failures
), unprogressed AS (
    DELETE FROM progress USING gone WHERE progress.run_id = gone.run_id
), unleased AS (
    DELETE FROM leases USING gone WHERE leases.kind = 'run' AND leases.subject = gone.run_id
)
SELECT g.run_id, g.customer, g.config_id, g.is_dead, g.ordering_key,
    CASE WHEN g.retry_delay_us IS NOT NULL THEN
        (SELECT t.run_id FROM retried t WHERE t.parent_run_id = g.run_id) END,
    CASE WHEN g.is_dead THEN coalesce(
        (SELECT h.consecutive_failures FROM health h WHERE h.config_id = g.config_id), 0)
        ELSE 0 END,
    g.flow_id, g.processor, g.final_state, g.limits, g.item_key, g.status, g.error_type, g.records,
    {{entity_role_of_gone}}, {{is_failed_start}}
FROM gone g;

-- name: run_finish_many [sqlite]
-- differs because SQLite has no data-modifying CTEs: the ended rows are staged in a temporary
-- table.
-- scope: system (by token, known only to the holder)
-- batch: run_id bigint, token bigint, final_state text, status text, duration_us bigint,
--   error_type text, error_details text, result text, records bigint, bytes bigint, stages text,
--   retry_delay_us bigint, retry_max_execution_us bigint, is_dead boolean, is_stale boolean,
--   actor text, why text
CREATE TEMP TABLE IF NOT EXISTS gone AS
SELECT {{gone_columns}}, CAST(NULL AS integer) AS retry_run_id
FROM (SELECT * FROM {{batch}}) AS x CROSS JOIN runs r ON r.run_id = x.run_id WHERE FALSE;
DELETE FROM temp.gone;
INSERT INTO temp.gone
SELECT {{gone_columns}}, NULL
FROM (SELECT * FROM {{batch}}) AS x CROSS JOIN runs r ON r.run_id = x.run_id
WHERE r.token = x.token AND r.state IN ('CLAIMED', 'RUNNING');
-- The retry's id is chosen here, so that it can be referenced later. Only retried rows are
-- numbered, because numbering all rows costs more than staging them.
UPDATE temp.gone SET retry_run_id = k.id
FROM (SELECT g.rowid AS place, row_number() OVER (ORDER BY g.rowid) + (
          SELECT coalesce(max(seq), 0) FROM main.sqlite_sequence WHERE name = 'runs') AS id
      FROM temp.gone g WHERE g.retry_delay_us IS NOT NULL) AS k
WHERE gone.rowid = k.place;
DELETE FROM runs WHERE run_id IN (SELECT run_id FROM temp.gone);
{{history_from_gone}};
{{journal_from_gone}};
INSERT INTO runs (run_id, {{insert_columns}})
SELECT g.retry_run_id, {{retry_values}} FROM temp.gone g WHERE g.retry_run_id IS NOT NULL
ON CONFLICT DO NOTHING;
INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
SELECT t.created_at, 'run', t.run_id, t.customer, 'created', 'penstock', 'PENDING', 'retry'
FROM temp.gone g CROSS JOIN runs t ON t.run_id = g.retry_run_id
WHERE g.retry_run_id IS NOT NULL;
{{sums_from_gone}};
{{cohorts_from_gone}};
{{announced_from_gone}};
{{dead_from_gone}};
{{health_from_gone}}
{{health_conflict}};
DELETE FROM progress WHERE run_id IN (SELECT run_id FROM temp.gone);
DELETE FROM leases WHERE kind = 'run' AND subject IN (SELECT run_id FROM temp.gone);
SELECT g.run_id, g.customer, g.config_id, g.is_dead, g.ordering_key, t.run_id,
    CASE WHEN g.is_dead THEN coalesce(h.consecutive_failures, 0) ELSE 0 END,
    g.flow_id, g.processor, g.final_state, g.limits, g.item_key, g.status, g.error_type, g.records,
    {{entity_role_of_gone}}, {{is_failed_start}}
FROM temp.gone g LEFT JOIN runs t ON t.run_id = g.retry_run_id
    LEFT JOIN config_health h ON h.config_id = g.config_id;
