-- Reads for the API, the CLI and metrics: runs, sums, overview.

-- fragment: sla_runs
-- Whether ended run `h` counts for SLA compliance: it has an SLA, no further attempt follows, and
-- it was not cancelled.
CASE WHEN h.sla_met IS NOT NULL AND NOT h.was_retried AND h.final_state <> 'CANCELLED'
    THEN 1 ELSE 0 END

-- fragment: sla_kept
-- Whether ended run `h` kept its SLA: it started on time and completed.
CASE WHEN h.sla_met AND NOT h.was_retried AND h.final_state = 'COMPLETED' THEN 1 ELSE 0 END

-- fragment: live_breach_us
-- By how much live run `r` has missed its SLA so far; a run that has not started misses it as soon
-- as the threshold passes.
greatest(coalesce(r.started_at, {{now}}) - r.slot - r.sla_us, 0)

-- fragment: live_sla_met
-- Whether live run `r` met its SLA; NULL without one, and before it is known.
CASE WHEN {{live_breach_us}} > 0 THEN FALSE WHEN r.sla_us IS NOT NULL AND r.started_at IS NOT NULL
    THEN TRUE END

-- fragment: live_columns
-- In the order of runs.rows.RunRow.
r.run_id, c.customer_id, r.config_id, l.name, p.phase, p.name, r.flow_id, r.partition, r.mode,
r.slot, r.scheduled_time, r.priority, r.state, NULL, r.claimed_by, r.claimed_at, r.started_at,
NULL, r.attempt, r.lapses, r.parent_run_id, r.root_run_id, NULL, NULL, NULL, NULL,
{{live_sla_met}}, CASE WHEN r.sla_us IS NOT NULL THEN {{live_breach_us}} END,
r.correlation_id, r.trigger_source, r.created_at, r.admission, r.token, FALSE,
r.cancel_requested_at, coalesce(r.parameters, f.parameters), r.ordering_key, r.max_execution_us,
r.state_at, (SELECT e.until_at FROM leases e WHERE e.kind = 'run' AND e.subject = r.run_id
    AND e.token = r.token), coalesce(f.retry, p.retry), r.trigger_message_id, FALSE, NULL, NULL,
NULL, r.cancel_requested_by, r.cancel_reason, r.item_key, r.item,
CASE WHEN r.admission < 6 THEN r.scheduled_time + r.expires_us END

-- fragment: live_joins
FROM runs r
{{live_names}}

-- fragment: live_names
JOIN customers c ON c.customer = r.customer
JOIN processors p ON p.processor = r.processor
JOIN pipelines l ON l.pipeline = p.pipeline
LEFT JOIN configs f ON f.config_id = r.config_id

-- fragment: ended_columns
h.run_id, c.customer_id, h.config_id, l.name, p.phase, p.name, h.flow_id, h.partition, h.mode,
h.slot, h.scheduled_time, h.priority, h.final_state, h.status, h.claimed_by, h.claimed_at,
h.started_at, h.finished_at, h.attempt, h.lapses, h.parent_run_id, h.root_run_id, h.error_type,
h.error_details, h.result, h.records, h.sla_met, h.sla_breach_us, h.correlation_id,
h.trigger_source, h.created_at, NULL, h.token, h.is_dead, NULL,
coalesce(h.parameters, f.parameters), h.ordering_key, NULL, h.finished_at, NULL,
coalesce(f.retry, p.retry), h.trigger_message_id, h.was_retried, h.bytes, h.stages, h.cost, NULL,
NULL, h.item_key, h.item, NULL

-- fragment: ended_joins
FROM history h
{{ended_names}}

-- fragment: ended_names
JOIN customers c ON c.customer = h.customer
JOIN processors p ON p.processor = h.processor
JOIN pipelines l ON l.pipeline = p.pipeline
LEFT JOIN configs f ON f.config_id = h.config_id

-- name: run_get_live
-- A live run, optionally only if it belongs to a customer.
SELECT {{live_columns}} {{live_joins}}
WHERE r.run_id = :run_id AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer);

-- name: run_get_ended
-- An ended run, optionally only if it belongs to a customer.
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.run_id = :run_id AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer);

-- name: run_held_get
-- A live run as its holder sees it, locked, for transitions requested by others.
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.run_id = :run_id AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
{{pg:FOR UPDATE OF r}};

-- name: run_chain
-- The ended attempts of one run, oldest first.
-- scope: system (the caller has checked the run)
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.run_id = :root OR (h.run_id > :root AND h.root_run_id = :root
    AND h.customer = :customer AND h.slot = :slot)
ORDER BY h.run_id LIMIT 100;

-- name: run_live_retry
-- The attempt of a chain that waits or executes, other than the given run; there is at most one.
-- scope: system (the caller has checked the run)
SELECT {{live_columns}} {{live_joins}}
WHERE r.customer = :customer AND r.slot = :slot AND r.root_run_id = :root AND r.run_id <> :run_id
LIMIT 1;

-- fragment: live_of_slot
SELECT r.run_id, r.state, r.parent_run_id, r.root_run_id
FROM runs r JOIN processors p ON p.processor = r.processor
WHERE r.customer = :customer AND r.slot = :slot AND p.phase = :phase AND p.name = :processor
    AND r.item_key = :item_key AND (CAST(:flow_id AS bigint) IS NULL) = (r.flow_id IS NULL)
    AND (CAST(:flow_id AS bigint) IS NULL OR r.flow_id = :flow_id)

-- name: run_live_of_occurrence
-- The live runs of a processor for one occurrence of a config; all do the same work.
-- scope: system (the caller has checked the run)
{{live_of_slot}} AND r.config_id = :config_id ORDER BY r.run_id LIMIT 1;

-- name: run_live_of_submission
-- The live runs of a processor without a config that may do the same work as a run: of the same
-- flow, or, outside any flow, retries with its correlation id.
-- scope: system (the caller has checked the run)
{{live_of_slot}} AND r.config_id IS NULL
    AND (r.flow_id IS NOT NULL OR (r.parent_run_id IS NOT NULL
        AND (r.correlation_id = :correlation_id OR r.root_run_id = :root)))
ORDER BY r.run_id;

-- name: run_parents
-- The parents of ended runs, and the first attempts of their chains.
-- scope: system (the caller has checked the runs)
SELECT h.run_id, h.parent_run_id, h.root_run_id FROM history h WHERE h.run_id {{any ids}};

-- name: run_progress_get
-- Live progress of a run.
-- scope: system (the caller has checked the run)
SELECT current_state, stage, percent, worker, pod, region, estimated_completion_at,
    records_extracted, records_transformed, records_loaded, bytes_processed, beat_at
FROM progress WHERE run_id = :run_id;

-- name: run_cancel_pending [postgres]
-- Remove a pending run from the queue: CLAIMED without a holder, so that finish can end it.
-- scope: system (the caller has checked the run)
UPDATE runs SET state = 'CLAIMED', admission = 9, claimed_by = NULL, session_id = NULL,
    token = nextval('token_seq'), state_at = {{now}}
WHERE run_id = :run_id AND state = 'PENDING' RETURNING token;

-- name: run_cancel_pending [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (the caller has checked the run)
UPDATE counters SET value = value + 1 WHERE name = 'token';
UPDATE runs SET state = 'CLAIMED', admission = 9, claimed_by = NULL, session_id = NULL,
    token = (SELECT value FROM counters WHERE name = 'token'), state_at = {{now}}
WHERE run_id = :run_id AND state = 'PENDING' RETURNING token;

-- name: run_live_of_item
-- The live run of an item.
-- scope: system (the caller has checked the flow)
SELECT run_id, state FROM runs
WHERE flow_id = :flow_id AND processor = :processor AND item_key = :item_key LIMIT 1;

-- name: run_cancel_pending_flow [postgres]
-- Remove the pending runs of a flow, of one processor or all, as `run_cancel_pending` does.
-- scope: system (the caller locked the flow)
UPDATE runs SET state = 'CLAIMED', admission = 9, claimed_by = NULL, session_id = NULL,
    token = nextval('token_seq'), state_at = {{now}}
WHERE flow_id = :flow_id AND state = 'PENDING'
    AND (CAST(:processor AS bigint) IS NULL OR processor = :processor) RETURNING run_id, token;

-- name: run_cancel_pending_flow [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (the caller locked the flow)
UPDATE runs SET state = 'CLAIMED', admission = 9, claimed_by = NULL, session_id = NULL,
    token = (SELECT value FROM counters WHERE name = 'token') + k.rank, state_at = {{now}}
FROM (SELECT run_id, row_number() OVER (ORDER BY run_id) AS rank FROM runs
      WHERE flow_id = :flow_id AND state = 'PENDING'
          AND (CAST(:processor AS bigint) IS NULL OR processor = :processor)) AS k
WHERE runs.run_id = k.run_id;
UPDATE counters SET value = coalesce((SELECT max(token) FROM runs
    WHERE flow_id = :flow_id AND token > value), value) WHERE name = 'token';
SELECT run_id, token FROM runs WHERE flow_id = :flow_id AND state = 'CLAIMED'
    AND claimed_by IS NULL AND session_id IS NULL
    AND (CAST(:processor AS bigint) IS NULL OR processor = :processor) ORDER BY run_id;

-- name: run_of_flow_not_stopped
-- A live run of a flow that may still be retried or returned to the queue.
-- scope: system (the caller locked the flow)
SELECT run_id FROM runs WHERE flow_id = :flow_id AND cancel_requested_by IS NULL LIMIT 1;

-- name: run_stop_flow
-- Let no live run of a flow be retried or returned to the queue: it has an author and a reason of
-- its cancellation. With :asks, those that are held are also asked to stop. Returns the held runs.
-- scope: system (the caller locked the flow)
UPDATE runs SET cancel_requested_by = coalesce(cancel_requested_by, :actor),
    cancel_reason = coalesce(cancel_reason, :reason),
    cancel_requested_at = CASE WHEN :asks AND admission = 9
        THEN coalesce(cancel_requested_at, {{now}}) ELSE cancel_requested_at END
WHERE flow_id = :flow_id RETURNING run_id, admission;

-- name: run_cancel_request
-- Request cancellation; the holder learns of it at its next heartbeat. The first request counts.
-- scope: system (the caller has checked the run)
UPDATE runs SET cancel_requested_at = coalesce(cancel_requested_at, {{now}}),
    cancel_requested_by = CASE WHEN cancel_requested_at IS NULL THEN :actor
        ELSE cancel_requested_by END,
    cancel_reason = CASE WHEN cancel_requested_at IS NULL
        THEN coalesce(:reason, cancel_reason) ELSE coalesce(cancel_reason, :reason) END
WHERE run_id = :run_id AND state IN ('CLAIMED', 'RUNNING') RETURNING run_id;

-- fragment: metrics_sums
count(*), sum(CASE WHEN h.final_state = 'COMPLETED' THEN 1 ELSE 0 END),
sum(CASE WHEN h.final_state = 'COMPLETED'
    THEN h.finished_at - coalesce(h.started_at, h.finished_at) ELSE 0 END),
sum({{sla_kept}}), sum(CASE WHEN h.final_state IN ('FAILED', 'TIMEOUT', 'EXPIRED') THEN 1 ELSE 0 END),
sum({{sla_runs}})

-- name: customer_metrics
-- Sums per provider: whole aggregated days, the partial days at both ends of the window, and runs
-- not aggregated yet (found by end time, because the index on slot would scan the whole window).
-- Runs that have not started although their SLA has passed count as breaches.
SELECT m.provider, sum(m.runs), sum(m.completed), sum(m.duration_us), sum(m.sla_kept),
    sum(m.failed), sum(m.sla_runs)
FROM (
    SELECT d.provider, sum(d.runs) AS runs,
        sum(CASE WHEN d.final_state = 'COMPLETED' THEN d.runs ELSE 0 END) AS completed,
        sum(CASE WHEN d.final_state = 'COMPLETED' THEN d.duration_us ELSE 0 END) AS duration_us,
        sum(d.sla_kept) AS sla_kept,
        sum(CASE WHEN d.final_state IN ('FAILED', 'TIMEOUT', 'EXPIRED') THEN d.runs ELSE 0 END) AS failed,
        sum(d.sla_runs) AS sla_runs
    FROM customer_days d
    WHERE d.customer = :customer AND d.day_at >= :day_from AND d.day_at < :day_to
    GROUP BY d.provider
    UNION ALL
    SELECT h.provider, {{metrics_sums}} FROM history h
    WHERE h.customer = :customer AND h.slot >= :occurrence_from AND h.slot < :day_from
    GROUP BY h.provider
    UNION ALL
    SELECT h.provider, {{metrics_sums}} FROM history h
    WHERE h.customer = :customer AND h.slot >= :day_to AND h.slot < :occurrence_to
    GROUP BY h.provider
    UNION ALL
    SELECT h.provider, {{metrics_sums}} FROM history h
    WHERE h.customer = :customer AND h.finished_at > :folded_to
        AND h.slot + 0 >= :day_from AND h.slot + 0 < :day_to
    GROUP BY h.provider
    UNION ALL
    SELECT coalesce(f.provider, ''), 0, 0, 0, 0, 0, count(*) FROM runs r
    LEFT JOIN configs f ON f.config_id = r.config_id
    WHERE r.customer = :customer AND r.slot >= :occurrence_from AND r.slot < :occurrence_to
        AND r.started_at IS NULL AND {{live_breach_us}} > 0
    GROUP BY 1
) AS m
GROUP BY m.provider ORDER BY m.provider;

-- name: overview_live
-- Live runs by state and admission.
-- scope: system (operators)
SELECT r.state, r.admission, count(*), min(r.scheduled_time),
    sum(CASE WHEN {{live_breach_us}} > 0 THEN 1 ELSE 0 END) FROM runs r
GROUP BY r.state, r.admission;

-- name: overview_flows
-- Open flows that a phase holds up: blocked ones, and those that only wait.
-- scope: system (operators; a tenant's key adds :customer)
SELECT coalesce(sum(CASE WHEN o.state = 'BLOCKED' THEN 1 ELSE 0 END), 0),
    coalesce(sum(CASE WHEN o.state = 'WAITING' THEN 1 ELSE 0 END), 0)
FROM (SELECT w.flow_id, min(p.state) AS state
    FROM flows w JOIN flow_phases p ON p.flow_id = w.flow_id
    WHERE w.ended_at IS NULL AND w.state = 'OPEN' AND p.state IN ('WAITING', 'BLOCKED')
        AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
    GROUP BY w.flow_id) AS o;

-- name: overview_ended
-- Ended runs by state since a time (whole hours).
-- scope: system (operators)
SELECT final_state, sum(runs), sum(duration_us), sum(sla_breaches) FROM run_sums
WHERE hour_at >= :since GROUP BY final_state;

-- name: counter_get
-- A named counter.
-- scope: system (counters have no customer)
SELECT value FROM counters WHERE name = :name;
