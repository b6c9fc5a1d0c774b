-- Flows and their phases: open, lock, advance, end; completions and flow events.

-- fragment: flow_columns
-- A flow, in the order of `rows.FlowRow`.
w.flow_id, w.customer, c.customer_id, w.pipeline, l.name, w.config_id, w.partition, w.mode,
w.generation, w.state, w.correlation_id, w.trigger_source, w.created_at, w.ended_at, w.digest,
w.start_phase, w.parent_flow_id, {{flow_deadline}}, w.no_downstream, w.is_degraded, w.missing, w.slot,
w.start_at, w.start_gap, w.priority, w.is_ordered, w.parameters, w.opened_by, w.message_id, w.began_at

-- fragment: flow_deadline
-- NULL while a flow waits for the flow before it: stored as the farthest time, in the order of
-- deadlines (`core.clock.FAR_FUTURE`).
nullif(w.deadline_at, 4611686018427387904)

-- fragment: flow_begun_at
-- When a flow began: when it was opened, or when the flow before it ended.
coalesce(w.began_at, w.created_at)

-- fragment: flow_joins
JOIN customers c ON c.customer = w.customer
JOIN pipelines l ON l.pipeline = w.pipeline

-- fragment: flow_ahead
-- The earlier open flow of its config that a flow waits for, if overlap is queue or catch_up is
-- all.
CASE WHEN w.is_ordered THEN (SELECT min(e.flow_id) FROM flows e
    WHERE e.config_id = w.config_id AND e.ended_at IS NULL AND NOT e.by_hand
        AND e.flow_id < w.flow_id) END

-- name: definition_put
-- Store a declaration for the flows that are opened with it.
-- scope: system (declarations have no customer)
INSERT INTO definitions (pipeline, digest, definition, created_at)
VALUES (:pipeline, :digest, :definition, {{now}})
ON CONFLICT (pipeline, digest) DO NOTHING;

-- name: definition_get
-- A declaration by its digest, current or not.
-- scope: system (declarations have no customer)
SELECT definition FROM definitions WHERE pipeline = :pipeline AND digest = :digest;

-- name: definition_of_config_list
-- The pipelines of configs, and the settings that flows take from their config.
-- scope: system (the caller took the configs)
SELECT f.config_id, f.customer, f.pipeline, l.digest, f.priority,
    CASE WHEN f.catch_up = 'all' OR f.overlap = 'queue' THEN TRUE ELSE FALSE END,
    f.max_execution_us, f.sla_us, f.offset_us, f.timezone
FROM configs f JOIN pipelines l ON l.pipeline = f.pipeline WHERE f.config_id {{any ids}};

-- name: config_parameters_list
-- The current parameters of configs.
-- scope: system (the caller has read their flows)
SELECT f.config_id, f.parameters FROM configs f WHERE f.config_id {{any ids}};

-- name: generation_next_many
-- The next generation of each key; concurrent openers of the same key wait here. Numbers given to
-- flows that belong to no config, before there was one, are not given again.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, config_id bigint, partition text, mode text,
--   reruns bigint
INSERT INTO generations (customer, pipeline, config_id, partition, mode, generation, reruns,
    changed_at)
SELECT batch.customer, batch.pipeline, batch.config_id, batch.partition, batch.mode,
    1 + coalesce((SELECT z.generation FROM generations z WHERE z.customer = batch.customer
        AND z.pipeline = batch.pipeline AND z.config_id = 0 AND z.partition = batch.partition
        AND z.mode = batch.mode AND batch.config_id <> 0), 0),
    batch.reruns, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (customer, pipeline, config_id, partition, mode) DO UPDATE SET
    generation = greatest(generations.generation + 1, excluded.generation), reruns = generations.reruns + excluded.reruns,
    changed_at = excluded.changed_at
RETURNING customer, pipeline, config_id, partition, mode, generation;

-- name: generation_take_many
-- Raise generations to chosen numbers. Returns the keys whose generation was lower.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, config_id bigint, partition text, mode text,
--   generation bigint
INSERT INTO generations (customer, pipeline, config_id, partition, mode, generation, reruns,
    changed_at)
SELECT batch.customer, batch.pipeline, batch.config_id, batch.partition, batch.mode,
    batch.generation, 0, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (customer, pipeline, config_id, partition, mode) DO UPDATE SET
    generation = excluded.generation, changed_at = excluded.changed_at
WHERE generations.generation < excluded.generation
RETURNING customer, pipeline, config_id, partition, mode;

-- name: generation_get
-- The newest generation of a key and the number of reruns by late data; locked.
-- scope: system (the caller has checked the flow)
SELECT generation, reruns FROM generations
WHERE customer = :customer AND pipeline = :pipeline AND config_id = :config_id
    AND partition = :partition AND mode = :mode {{pg:FOR NO KEY UPDATE}};

-- name: flow_insert_many
-- Open flows, each once per key and generation. Returns the new ones.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, config_id bigint, partition text, mode text,
--   generation bigint, correlation_id text, trigger_source text, digest text, start_phase text,
--   parent_flow_id bigint, deadline_at bigint, no_downstream boolean, slot bigint,
--   start_at bigint, start_gap bigint, priority bigint, is_ordered boolean, parameters text, opened_by text,
--   message_id text, subscription text, by_hand boolean
INSERT INTO flows (customer, pipeline, config_id, partition, mode, generation, state,
    correlation_id, trigger_source, created_at, digest, start_phase, parent_flow_id, deadline_at,
    no_downstream, slot, start_at, start_gap, priority, is_ordered, parameters, opened_by, message_id,
    subscription, by_hand)
SELECT batch.customer, batch.pipeline, batch.config_id, batch.partition, batch.mode,
    batch.generation, 'OPEN', batch.correlation_id, batch.trigger_source, {{now}}, batch.digest,
    batch.start_phase, batch.parent_flow_id, batch.deadline_at, batch.no_downstream, batch.slot,
    batch.start_at, batch.start_gap, batch.priority, batch.is_ordered, batch.parameters, batch.opened_by,
    batch.message_id, batch.subscription, batch.by_hand
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (customer, pipeline, config_id, partition, mode, generation) DO NOTHING
RETURNING flow_id, customer, pipeline, config_id, partition, mode, generation;

-- fragment: flow_has_overrides
(SELECT o.override_id FROM overrides o WHERE o.customer = w.customer
    AND o.pipeline = w.pipeline AND o.partition = w.partition LIMIT 1) IS NOT NULL

-- fragment: flow_has_breakers
(SELECT b.failures FROM breakers b WHERE b.customer = w.customer AND b.pipeline = w.pipeline
    AND b.partition = w.partition LIMIT 1) IS NOT NULL

-- name: flow_lock_many
-- Flows by id, locked in order, so that two concurrent last completions cannot miss each other.
-- Also returns whether overrides or breakers exist, and the earlier flow that a flow waits for.
-- scope: system (the cascade serves all customers)
SELECT {{flow_columns}}, {{flow_has_overrides}}, {{flow_has_breakers}}, {{now}}, {{flow_ahead}}
FROM flows w {{flow_joins}}
WHERE w.flow_id {{any ids}} ORDER BY w.flow_id {{pg:FOR NO KEY UPDATE OF w}};

-- name: flow_lock_free_many
-- The same for a transaction that already holds other locks and must not wait: flows that another
-- transaction holds are left out, and those whose evaluation may lock more than their own rows.
-- scope: system (the cascade serves all customers)
SELECT {{flow_columns}}, {{flow_has_overrides}}, FALSE, {{now}}, {{flow_ahead}}
FROM flows w {{flow_joins}}
WHERE w.flow_id {{any ids}} AND w.ended_at IS NULL
    AND (w.deadline_at IS NULL OR w.deadline_at > {{now}}) AND NOT {{flow_has_breakers}}
ORDER BY w.flow_id {{pg:FOR NO KEY UPDATE OF w SKIP LOCKED}};

-- name: flow_get
-- One flow.
-- scope: system (a tenant's key adds :customer)
SELECT {{flow_columns}} FROM flows w {{flow_joins}}
WHERE w.flow_id = :flow_id AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer);

-- name: flow_find
-- The newest flow of a partition in a mode, of any trigger source; open ones before ended ones.
-- scope: system (the caller has looked up the customer)
SELECT {{flow_columns}} FROM flows w {{flow_joins}}
WHERE w.customer = :customer AND w.pipeline = :pipeline AND w.partition = :partition
    AND (CAST(:mode AS text) IS NULL OR w.mode = :mode)
    AND (CAST(:config_id AS bigint) IS NULL OR w.config_id IN (:config_id, 0))
ORDER BY CASE WHEN w.ended_at IS NULL THEN 0 ELSE 1 END, w.flow_id DESC LIMIT 1;

-- name: flow_open_list
-- The open flows of a key, and those of the same partition and mode that belong to no config.
-- scope: system (the caller has looked up the customer)
SELECT {{flow_columns}} FROM flows w {{flow_joins}}
WHERE w.customer = :customer AND w.pipeline = :pipeline AND w.partition = :partition
    AND w.mode = :mode AND w.config_id IN (:config_id, 0) AND w.ended_at IS NULL
ORDER BY w.flow_id LIMIT 100;

-- name: flow_of_generation
-- The flow of one generation of a key.
-- scope: system (the caller has checked the flow)
SELECT flow_id FROM flows WHERE customer = :customer AND pipeline = :pipeline
    AND config_id = :config_id AND partition = :partition AND mode = :mode
    AND generation = :generation;

-- fragment: flow_filters
(CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR w.pipeline = :pipeline)
    AND (CAST(:partition AS text) IS NULL OR w.partition = :partition)
    AND (CAST(:mode AS text) IS NULL OR w.mode = :mode)
    AND (CAST(:state AS text) IS NULL OR w.state = :state)
    AND (CAST(:phase_state AS text) IS NULL OR EXISTS (SELECT 1 FROM flow_phases p
        WHERE p.flow_id = w.flow_id AND p.state = :phase_state))
    AND w.created_at >= :since AND w.created_at < :until
    AND (CAST(:fragment AS text) IS NULL
        OR lower(substr(w.partition, 1, length(CAST(:fragment AS text)))) = lower(:fragment)
        OR lower(substr(l.name, 1, length(CAST(:fragment AS text)))) = lower(:fragment)
        OR lower(substr(c.customer_id, 1, length(CAST(:fragment AS text)))) = lower(:fragment))

-- fragment: flow_ids
w.flow_id < :before AND w.flow_id BETWEEN :first_id AND :last_id

-- name: flow_list
-- Flows, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{flow_columns}} FROM flows w {{flow_joins}}
WHERE {{flow_ids}} AND {{flow_filters}} ORDER BY w.flow_id DESC LIMIT :limit;

-- fragment: flow_open
-- Open flows, by their index. The product keeps the planner from reading all flows in id order,
-- almost all of which have ended; its sign is the direction.
flows w {{lite:INDEXED BY flows_due}} {{flow_joins}}
WHERE w.ended_at IS NULL AND w.flow_id * CAST(:direction AS bigint) < :before
    AND w.flow_id + 0 BETWEEN :first_id AND :last_id AND {{flow_filters}}

-- name: flow_list_open
-- Open flows, newest first or, with direction -1, oldest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{flow_columns}} FROM {{flow_open}}
ORDER BY w.flow_id * CAST(:direction AS bigint) DESC LIMIT :limit;

-- name: flow_list_stuck
-- Open flows with a blocked or failed phase or past their deadline, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{flow_columns}} FROM {{flow_open}}
    AND (w.deadline_at < {{now}} OR EXISTS (SELECT 1 FROM flow_phases p
        WHERE p.flow_id = w.flow_id AND p.state IN ('BLOCKED', 'FAILED')))
ORDER BY w.flow_id * CAST(:direction AS bigint) DESC LIMIT :limit;

-- name: flow_list_failed
-- Flows that ended failed or degraded, by their index, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{flow_columns}} FROM flows w {{lite:INDEXED BY flows_failed}} {{flow_joins}}
WHERE w.state IN ('FAILED', 'DEGRADED') AND {{flow_ids}} AND {{flow_filters}}
ORDER BY w.flow_id DESC LIMIT :limit;

-- fragment: flows_ended_last
-- The flows `k` that ended last, with their columns.
    ORDER BY k.ended_at DESC LIMIT :limit) AS n
{{lite:CROSS}} JOIN flows w ON w.flow_id = n.flow_id {{flow_joins}}
ORDER BY n.ended_at DESC, n.flow_id DESC

-- name: flow_list_ended
-- The most recently ended flows since a time.
-- scope: system (operators)
SELECT {{flow_columns}} FROM (SELECT k.flow_id, k.ended_at FROM flows k WHERE k.ended_at >= :since
{{flows_ended_last}};

-- name: flow_list_ended_customer
-- The same of one customer, among the last of all customers and a bounded number of its own.
SELECT {{flow_columns}} FROM (SELECT k.flow_id, k.ended_at FROM (
    SELECT a.flow_id, a.ended_at FROM (SELECT e.flow_id, e.customer, e.ended_at FROM flows e
        WHERE e.ended_at >= :since ORDER BY e.ended_at DESC LIMIT :searched) AS a
    WHERE a.customer = :customer
    UNION SELECT o.flow_id, o.ended_at FROM (SELECT e.flow_id, e.ended_at FROM flows e
        WHERE e.customer = :customer LIMIT :searched) AS o
    WHERE o.ended_at >= :since) AS k
{{flows_ended_last}};

-- fragment: flows_searched
SELECT w.flow_id FROM flows w WHERE {{flow_ids}}
    AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
    ORDER BY w.flow_id DESC LIMIT :searched

-- name: flow_search
-- The matching flows among the next ones, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{flow_columns}} FROM ({{flows_searched}}) AS s
{{lite:CROSS}} JOIN flows w ON w.flow_id = s.flow_id {{flow_joins}}
WHERE {{flow_filters}} ORDER BY w.flow_id DESC LIMIT :limit;

-- name: flow_search_end
-- How many flows a search examined, and the last of them.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*), min(s.flow_id) FROM ({{flows_searched}}) AS s;

-- name: flow_id_range
-- The first and the last id of flows.
-- scope: system (operators)
SELECT min(flow_id), max(flow_id) FROM flows;

-- name: flow_created_from
-- The first flow from an id on, and when it was opened.
-- scope: system (operators)
SELECT flow_id, created_at FROM flows WHERE flow_id >= :first_id ORDER BY flow_id LIMIT 1;

-- name: flow_phase_states
-- The flows among these that have a waiting or a blocked phase; BLOCKED if they have both.
-- scope: system (the caller has read the flows)
SELECT flow_id, min(state) FROM flow_phases
WHERE flow_id {{any ids}} AND state IN ('WAITING', 'BLOCKED') GROUP BY flow_id;

-- fragment: flow_ends
state = batch.state, is_degraded = batch.is_degraded, missing = batch.missing,
    ended_at = CASE WHEN batch.is_ended THEN coalesce(flows.ended_at, {{now}}) END

-- fragment: is_good_flow
batch.is_ended AND batch.state IN ('COMPLETE', 'DEGRADED')
    AND w.config_id > 0 AND w.trigger_source IN ('scheduler', 'event')

-- name: flow_end_many [postgres]
-- Write the end of flows, or their missing data. A start of a config (by schedule or message) that
-- ended well resets the config's count of failures; configs without failures are not written.
-- scope: system (the cascade serves all customers)
-- batch: flow_id bigint, state text, is_degraded boolean, missing text, is_ended boolean
WITH healthy AS (
    UPDATE config_health SET consecutive_failures = 0
    WHERE config_id IN (SELECT h.config_id FROM {{batch}} JOIN flows w ON w.flow_id = batch.flow_id
            AND w.flow_id = ANY(:b_flow_id::bigint[])
        JOIN config_health h ON h.config_id = w.config_id AND h.consecutive_failures > 0
        WHERE {{is_good_flow}}
        ORDER BY h.config_id FOR UPDATE OF h)
)
UPDATE flows SET {{flow_ends}}
FROM {{batch}} WHERE flows.flow_id = batch.flow_id AND flows.flow_id = ANY(:b_flow_id::bigint[]);

-- name: flow_end_many [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (the cascade serves all customers)
-- batch: flow_id bigint, state text, is_degraded boolean, missing text, is_ended boolean
UPDATE flows SET {{flow_ends}}
FROM {{batch}} WHERE flows.flow_id = batch.flow_id;
UPDATE config_health SET consecutive_failures = 0
WHERE consecutive_failures > 0 AND config_id IN (
    SELECT w.config_id FROM {{batch}} CROSS JOIN flows w ON w.flow_id = batch.flow_id
    WHERE {{is_good_flow}});

-- name: flow_begin_many
-- Write the deadlines of flows that begin, or that wait for the flow before them.
-- scope: system (the caller locked the flows)
-- batch: flow_id bigint, deadline_at bigint, began_at bigint
UPDATE flows SET deadline_at = batch.deadline_at, began_at = batch.began_at
FROM {{batch}} WHERE flows.flow_id = batch.flow_id
    {{pg:AND flows.flow_id = ANY(:b_flow_id::bigint[])}};

-- name: phase_insert_many
-- Insert the phases of new flows, and the gates of single processors.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, customer bigint, phase text, processor text, state text,
--   started_at bigint, ended_at bigint, look_at bigint, is_degraded boolean, gate text,
--   fallback_at bigint
INSERT INTO flow_phases (flow_id, customer, phase, processor, state, since_at, started_at,
    ended_at, look_at, is_degraded, gate, fallback_at)
SELECT batch.flow_id, batch.customer, batch.phase, batch.processor, batch.state, {{now}},
    batch.started_at, batch.ended_at, batch.look_at, batch.is_degraded, batch.gate,
    batch.fallback_at
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (flow_id, phase, processor) DO NOTHING;

-- name: phase_rows_for_flows
-- The phases of flows.
-- scope: system (the caller locked or may see the flows)
SELECT flow_id, gate_id, phase, processor, state, since_at, started_at, ended_at, look_at,
    look_again, waiting_since, tries, is_degraded, gate, evidence
FROM flow_phases WHERE flow_id {{any ids}} ORDER BY gate_id;

-- name: phase_rows_named
-- Some phases of a long flow.
-- scope: system (the caller locked the flow)
SELECT flow_id, gate_id, phase, processor, state, since_at, started_at, ended_at, look_at,
    look_again, waiting_since, tries, is_degraded, gate, evidence
FROM flow_phases WHERE flow_id = :flow_id AND phase {{any names}} ORDER BY gate_id;

-- name: phase_degraded_any
-- Whether a phase of a flow, or a processor with its own gate, started degraded.
-- scope: system (the caller locked the flow)
SELECT EXISTS (SELECT 1 FROM flow_phases WHERE flow_id = :flow_id AND is_degraded);

-- name: phase_update_many
-- Write the current state of phases; since_at changes with the state.
-- scope: system (the caller locked the flows)
-- batch: gate_id bigint, state text, started_at bigint, ended_at bigint, look_at bigint,
--   look_again boolean, waiting_since bigint, tries bigint, is_degraded boolean, gate text,
--   evidence text
UPDATE flow_phases SET
    since_at = CASE WHEN flow_phases.state <> batch.state THEN {{now}} ELSE flow_phases.since_at END,
    state = batch.state, started_at = batch.started_at, ended_at = batch.ended_at,
    look_at = batch.look_at, look_again = batch.look_again, waiting_since = batch.waiting_since,
    tries = batch.tries, is_degraded = batch.is_degraded, gate = batch.gate,
    evidence = batch.evidence, fallback_at = CASE WHEN batch.state IN ('PENDING', 'WAITING', 'BLOCKED')
        THEN flow_phases.fallback_at END
FROM {{batch}} WHERE flow_phases.gate_id = batch.gate_id
    {{pg:AND flow_phases.gate_id = ANY(:b_gate_id::bigint[])}};

-- name: phase_due
-- Flows with due probes (flow, gate), then flows past their deadline (flow, NULL).
-- scope: system (the cascade serves all customers)
SELECT flow_id, gate_id FROM (
    SELECT flow_id, gate_id FROM flow_phases
    WHERE look_at IS NOT NULL AND look_at <= {{now}} ORDER BY look_at, flow_id LIMIT :n) AS looks
UNION ALL
SELECT flow_id, NULL FROM (
    SELECT flow_id FROM flows WHERE ended_at IS NULL AND deadline_at <= {{now}}
    ORDER BY deadline_at, flow_id LIMIT :n) AS late;

-- name: cascade_next_at
-- When work is due: flow events immediately, then probes, then deadlines; gates of single runs;
-- expansions. Also returns the current time.
-- scope: system (the cascade serves all customers)
SELECT (SELECT n.at FROM nudges n ORDER BY n.nudge_id LIMIT 1),
    (SELECT p.look_at FROM flow_phases p WHERE p.look_at IS NOT NULL ORDER BY p.look_at LIMIT 1),
    (SELECT {{flow_deadline}} FROM flows w WHERE w.ended_at IS NULL AND w.deadline_at IS NOT NULL
     ORDER BY w.deadline_at LIMIT 1),
    (SELECT g.probe_at FROM run_gates g WHERE g.probe_at IS NOT NULL ORDER BY g.probe_at LIMIT 1),
    (SELECT e.due_at FROM expansions e WHERE e.due_at IS NOT NULL ORDER BY e.due_at LIMIT 1),
    {{now}};

-- name: flow_open_of_config
-- An open flow of a config.
-- scope: system (the caller locked the config)
SELECT flow_id FROM flows WHERE config_id = :config_id AND ended_at IS NULL AND NOT by_hand
ORDER BY flow_id LIMIT 1;

-- name: flow_lock_open
-- The open flows of configs, locked, so that a transaction that ends one sees flows opened after
-- it.
-- scope: system (the caller locked the configs)
SELECT flow_id FROM flows WHERE config_id {{any ids}} AND ended_at IS NULL
ORDER BY flow_id {{pg:FOR NO KEY UPDATE}};

-- name: flow_queued
-- A flow of a config that waits for an earlier one to end.
-- scope: system (the caller locked the config)
SELECT w.flow_id FROM flows w WHERE w.config_id = :config_id AND w.ended_at IS NULL
    AND w.is_ordered AND w.flow_id > (SELECT min(e.flow_id) FROM flows e
        WHERE e.config_id = :config_id AND e.ended_at IS NULL AND NOT e.by_hand)
ORDER BY w.flow_id LIMIT 1;

-- name: flow_event_put_for_next
-- Insert a flow event for the next waiting flow of configs whose flows ended.
-- scope: system (the caller ended the flows)
INSERT INTO nudges (flow_id, customer, phase, is_failure, at)
SELECT min(w.flow_id), w.customer, NULL, FALSE, {{now}} FROM flows w
WHERE w.config_id {{any ids}} AND w.ended_at IS NULL AND w.is_ordered
GROUP BY w.config_id, w.customer;

-- name: flow_behind
-- The earlier open flow of the same config that a flow waits for.
-- scope: system (the caller may see the flow)
SELECT {{flow_ahead}} FROM flows w WHERE w.flow_id = :flow_id;

-- name: flow_event_put_many
-- Insert flow events.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, customer bigint, phase text, is_failure boolean
INSERT INTO nudges (flow_id, customer, phase, is_failure, at)
SELECT batch.flow_id, batch.customer, batch.phase, batch.is_failure, {{now}} FROM {{batch}}
ORDER BY ord;

-- name: completion_event_put_many
-- Insert flow events of processors that completed.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, customer bigint, phase text, is_failure boolean, processor text
INSERT INTO nudges (flow_id, customer, phase, is_failure, processor, at)
SELECT batch.flow_id, batch.customer, batch.phase, batch.is_failure, batch.processor, {{now}}
FROM {{batch}} ORDER BY ord;

-- name: flow_event_put_for_partition
-- Insert flow events for the open flows of a partition.
-- scope: system (the caller has looked up the customer)
INSERT INTO nudges (flow_id, customer, phase, is_failure, at)
SELECT w.flow_id, w.customer, NULL, FALSE, {{now}} FROM flows w
WHERE w.customer = :customer AND w.pipeline = :pipeline AND w.partition = :partition
    AND w.ended_at IS NULL
RETURNING flow_id;

-- name: flow_event_put_for_waiting
-- Insert flow events for open flows of a pipeline with a waiting or blocked gate.
-- scope: system (a tenant's key adds :customer)
INSERT INTO nudges (flow_id, customer, phase, is_failure, at)
SELECT w.flow_id, w.customer, NULL, FALSE, {{now}} FROM flows w
WHERE w.pipeline = :pipeline AND w.ended_at IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
    AND (CAST(:partition AS text) IS NULL OR w.partition = :partition)
    AND (CAST(:flow_id AS bigint) IS NULL OR w.flow_id = :flow_id)
    AND EXISTS (SELECT 1 FROM flow_phases p WHERE p.flow_id = w.flow_id
        AND p.state IN ('WAITING', 'BLOCKED')
        AND (CAST(:phase AS text) IS NULL OR p.phase = :phase))
RETURNING flow_id;

-- name: flow_digests_open
-- The declarations of a pipeline's open flows, except its current one.
-- scope: system (registration serves all customers)
SELECT DISTINCT digest FROM flows WHERE pipeline = :pipeline AND ended_at IS NULL
    AND digest <> :digest;

-- name: pipeline_users
-- The first and the last customer with an active config or an open flow of a pipeline.
-- scope: system (registration serves all customers)
SELECT min(u.customer), max(u.customer) FROM (
    SELECT f.customer FROM configs f WHERE f.pipeline = :pipeline AND f.is_active
    UNION ALL
    SELECT w.customer FROM flows w WHERE w.pipeline = :pipeline AND w.ended_at IS NULL
) AS u;

-- name: flow_lock_of_digests
-- The open flows with one of these declarations, locked in order as `flow_lock_many` does.
-- scope: system (registration serves all customers)
SELECT flow_id, customer, digest FROM flows WHERE pipeline = :pipeline AND ended_at IS NULL
    AND digest {{any texts}} AND digest <> :digest ORDER BY flow_id {{pg:FOR NO KEY UPDATE}};

-- name: flow_adopt
-- Let the open flows with one of these declarations follow another one.
-- scope: system (registration serves all customers)
UPDATE flows SET digest = :digest WHERE pipeline = :pipeline AND ended_at IS NULL
    AND digest {{any texts}};

-- name: flow_event_take
-- Delete and return flow events to handle in this transaction; those locked by others are skipped.
-- Chosen once: a join may evaluate a subquery again, which then skips what it has locked.
-- scope: system (the cascade serves all customers)
WITH taken AS MATERIALIZED (
    SELECT nudge_id FROM nudges ORDER BY nudge_id LIMIT :n {{pg:FOR UPDATE SKIP LOCKED}})
DELETE FROM nudges WHERE nudge_id IN (SELECT nudge_id FROM taken)
RETURNING flow_id, phase, is_failure, processor;

-- name: flow_event_take_others
-- The same without the flows that were set aside.
-- scope: system (the cascade serves all customers)
WITH taken AS MATERIALIZED (
    SELECT nudge_id FROM nudges WHERE NOT (flow_id {{any ids}})
    ORDER BY nudge_id LIMIT :n {{pg:FOR UPDATE SKIP LOCKED}})
DELETE FROM nudges WHERE nudge_id IN (SELECT nudge_id FROM taken)
RETURNING flow_id, phase, is_failure, processor;

-- fragment: completion_rank
-- A report may only improve a completion: failed, partial, success.
CASE excluded.status WHEN 'success' THEN 2 WHEN 'partial' THEN 1 ELSE 0 END
    > CASE completions.status WHEN 'success' THEN 2 WHEN 'partial' THEN 1 ELSE 0 END

-- fragment: completion_conflict
ON CONFLICT (flow_id, processor) DO UPDATE SET status = excluded.status, at = excluded.at,
    run_id = excluded.run_id, execution_id = excluded.execution_id, records = excluded.records,
    quality = excluded.quality, entities = excluded.entities,
    total_expected = excluded.total_expected, completeness_pct = excluded.completeness_pct,
    reported_in = excluded.reported_in
WHERE {{completion_rank}}
RETURNING flow_id, customer, processor, status, run_id

-- fragment: result_field_number
-- A processor may return anything: only a plain number is used.
CASE WHEN {{pg:h.result::json ->> 'quality_score' ~ '^[0-9]{1,9}([.][0-9]{1,30})?$'}}{{lite:json_type(h.result, '$.quality_score') IN ('integer', 'real')}}
    THEN CAST({{pg:h.result::json}}{{lite:h.result}} ->> 'quality_score' AS double precision) END

-- fragment: result_total_expected
CASE WHEN {{pg:h.result::json ->> 'total_expected' ~ '^[0-9]{1,18}$'}}{{lite:json_type(h.result, '$.total_expected') = 'integer' AND h.result ->> 'total_expected' >= 0}}
    THEN CAST({{pg:h.result::json}}{{lite:h.result}} ->> 'total_expected' AS bigint) END

-- fragment: result_completeness
-- As reported, or the share of the expected records that were processed; at most 100.
CASE WHEN {{pg:h.result::json ->> 'completeness_pct' ~ '^[0-9]{1,3}([.][0-9]{1,30})?$'}}{{lite:json_type(h.result, '$.completeness_pct') IN ('integer', 'real') AND h.result ->> 'completeness_pct' >= 0}}
    THEN least(CAST({{pg:h.result::json}}{{lite:h.result}} ->> 'completeness_pct' AS double precision), 100.0)
    WHEN {{result_total_expected}} > 0 AND h.records IS NOT NULL
    THEN least(h.records * 100.0 / {{result_total_expected}}, 100.0) END

-- fragment: status_of_end
CASE WHEN h.final_state <> 'COMPLETED' THEN 'failed'
    WHEN h.status = 'PARTIAL_SUCCESS' THEN 'partial' ELSE 'success' END

-- name: completion_from_runs
-- Record the completions of runs that just ended without a retry. Returns the new ones.
-- scope: system (the caller ended the runs)
-- batch: run_id bigint
INSERT INTO completions (flow_id, processor, customer, status, at, run_id, records, quality,
    entities, total_expected, completeness_pct)
SELECT h.flow_id, h.processor, h.customer,
    {{status_of_end}}, h.finished_at, h.run_id, h.records, {{result_field_number}},
    CASE WHEN h.result IS NOT NULL THEN {{pg:h.result::json}}{{lite:h.result}} ->> 'entities_changed' END,
    {{result_total_expected}}, {{result_completeness}}
FROM {{batch}} {{lite:CROSS}} JOIN history h ON h.run_id = batch.run_id
    AND h.finished_at > {{now}} - 3600000000 {{pg:AND h.run_id = ANY(:b_run_id::bigint[])}}
{{lite:CROSS}} JOIN flows w ON w.flow_id = h.flow_id
WHERE NOT h.was_retried
ORDER BY h.flow_id, h.processor
{{completion_conflict}};

-- name: completion_put_many
-- Record external or inherited completions. Returns the new ones.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, processor bigint, customer bigint, status text, at bigint,
--   run_id bigint, execution_id text, records bigint, quality float8, entities text,
--   total_expected bigint, completeness_pct float8, reported_in bigint
INSERT INTO completions (flow_id, processor, customer, status, at, run_id, execution_id, records,
    quality, entities, total_expected, completeness_pct, reported_in)
SELECT batch.flow_id, batch.processor, batch.customer, batch.status, batch.at, batch.run_id,
    batch.execution_id, batch.records, batch.quality, batch.entities, batch.total_expected,
    batch.completeness_pct, batch.reported_in
FROM {{batch}} WHERE TRUE ORDER BY 1, 2
{{completion_conflict}};

-- name: run_completion_list
-- The completions of runs without a flow, for the messages about them. A retry has the trigger
-- source of its first attempt.
-- scope: system (outbox publisher)
SELECT h.run_id, c.customer_id, l.name, p.phase, p.name, h.partition, h.mode, h.correlation_id,
    coalesce(f.trigger_source, h.trigger_source), {{status_of_end}}, h.records,
    {{result_field_number}}, {{result_total_expected}}, {{result_completeness}},
    coalesce(h.root_run_id, h.run_id)
FROM history h JOIN customers c ON c.customer = h.customer
    JOIN processors p ON p.processor = h.processor JOIN pipelines l ON l.pipeline = p.pipeline
    LEFT JOIN history f ON f.run_id = h.root_run_id
WHERE h.run_id {{any ids}} AND h.finished_at >= :since;

-- fragment: completion_columns
-- In the order of `rows.CompletionRow`.
s.flow_id, p.phase, p.name, s.status, s.at, s.quality, s.processor, s.run_id, s.execution_id,
s.records, s.entities, s.total_expected, s.completeness_pct, s.reported_in

-- name: completion_rows_for_flows
-- The completions of flows, by phase and processor.
-- scope: system (the caller locked or may see the flows)
SELECT {{completion_columns}}
FROM completions s {{lite:CROSS}} JOIN processors p ON p.processor = s.processor
WHERE s.flow_id {{any ids}} ORDER BY s.flow_id, s.processor;

-- name: completion_rows_named
-- The completions of some phases of a long flow; each is found by key, whatever the planner's
-- statistics.
-- scope: system (the caller locked the flow)
SELECT {{completion_columns}}
FROM processors p CROSS JOIN {{pg:LATERAL (SELECT * FROM completions c
    WHERE c.flow_id = :flow_id AND c.processor = p.processor LIMIT 1) s}}{{lite:completions s
    ON s.flow_id = :flow_id AND s.processor = p.processor}}
WHERE p.pipeline = :pipeline AND p.phase {{any names}} ORDER BY s.processor;

-- name: processor_keys_list
-- The processors of pipelines by phase and name, with their pools.
-- scope: system (declarations have no customer)
SELECT p.pipeline, p.phase, p.name, p.processor, o.name
FROM processors p JOIN pools o ON o.pool = p.pool WHERE p.pipeline {{any ids}};

-- name: phase_of_list
-- The phases and names of processors, and their roles in incremental cascades.
-- scope: system (declarations have no customer)
SELECT processor, phase, name, entity_role FROM processors WHERE processor {{any ids}};

-- name: completion_recorded_in
-- Whether a report of this execution was recorded before, in any generation, pruned or not; without
-- a mode, in any mode.
-- scope: system (the caller has looked up the customer)
SELECT s.flow_id FROM flows w JOIN completions s ON s.flow_id = w.flow_id
WHERE w.customer = :customer AND w.pipeline = :pipeline AND w.partition = :partition
    AND (CAST(:mode AS text) IS NULL OR w.mode = :mode)
    AND s.processor = :processor AND s.execution_id = :execution_id
UNION ALL
SELECT k.flow_id FROM completion_ids k
WHERE k.customer = :customer AND k.processor = :processor AND k.execution_id = :execution_id
    AND k.partition = :partition AND (CAST(:mode AS text) IS NULL OR k.mode = :mode)
LIMIT 1;

-- fragment: flows_to_prune
SELECT flow_id FROM flows WHERE ended_at IS NOT NULL AND ended_at < :before
    ORDER BY ended_at, flow_id LIMIT :n

-- name: flows_prune
-- Delete ended flows with their phases, completions and triggers, in chunks; their logs stay, and
-- so do the execution ids of reports.
-- scope: system (retention)
INSERT INTO completion_ids (customer, processor, execution_id, partition, mode, flow_id, at)
SELECT s.customer, s.processor, s.execution_id, w.partition, w.mode, w.flow_id, s.at
FROM flows w JOIN completions s ON s.flow_id = w.flow_id
WHERE s.execution_id IS NOT NULL AND w.flow_id IN ({{flows_to_prune}})
ON CONFLICT (customer, processor, execution_id, partition, mode) DO NOTHING;
DELETE FROM flow_phases WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM completions WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM triggers WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM entity_inputs WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM expansions WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM expansion_items WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM item_completions WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM item_counts WHERE flow_id IN ({{flows_to_prune}});
DELETE FROM flows WHERE flow_id IN ({{flows_to_prune}});

-- name: generations_prune
-- Delete the generation numbers of partitions that have not changed for a long time.
-- scope: system (retention)
DELETE FROM generations WHERE (customer, pipeline, config_id, partition, mode) IN (
    SELECT customer, pipeline, config_id, partition, mode FROM generations g
    WHERE g.changed_at < :before AND NOT EXISTS (SELECT 1 FROM flows w
        WHERE w.customer = g.customer AND w.pipeline = g.pipeline AND w.config_id = g.config_id
            AND w.partition = g.partition AND w.mode = g.mode)
    LIMIT :n);

-- name: completion_ids_prune
-- Delete the execution ids of reports that are past their retention.
-- scope: system (retention)
DELETE FROM completion_ids WHERE (customer, processor, execution_id, partition, mode) IN (
    SELECT customer, processor, execution_id, partition, mode FROM completion_ids
    WHERE at < :before ORDER BY at LIMIT :n);
