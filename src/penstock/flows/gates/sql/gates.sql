-- Gates: probe leases, decisions, triggers, breakers; overrides and interventions.

-- name: probe_lease_many [postgres]
-- Lease the probes that are not leased; the new token fences the previous holder.
-- scope: system (the cascade serves all customers)
-- batch: gate_id bigint
INSERT INTO leases (kind, subject, token, holder, until_at)
SELECT 'look', batch.gate_id, nextval('token_seq'), CAST(:holder AS text), {{now}} + :lease_us
FROM {{batch}} ORDER BY batch.gate_id
ON CONFLICT (kind, subject) DO UPDATE SET token = excluded.token, holder = excluded.holder,
    until_at = excluded.until_at
WHERE leases.until_at <= {{now}}
RETURNING subject, token;

-- name: probe_lease_many [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (the cascade serves all customers)
-- batch: gate_id bigint
UPDATE counters SET value = value + (SELECT count(*) FROM {{batch}}) WHERE name = 'token';
INSERT INTO leases (kind, subject, token, holder, until_at)
SELECT 'look', batch.gate_id,
    (SELECT value FROM counters WHERE name = 'token') - (SELECT count(*) FROM {{batch}})
        + batch.ord, :holder, {{now}} + :lease_us
FROM {{batch}} WHERE TRUE ORDER BY batch.gate_id
ON CONFLICT (kind, subject) DO UPDATE SET token = excluded.token, holder = excluded.holder,
    until_at = excluded.until_at
WHERE leases.until_at <= {{now}}
RETURNING subject, token;

-- name: trigger_put_many
-- Insert triggers of phases or single processors, once per flow. Returns the new ones.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, phase text, processor text, customer bigint, verdict text, source text,
--   is_observed boolean, runs bigint, parent_processor text, parent_run_id bigint
INSERT INTO triggers (flow_id, phase, processor, customer, at, verdict, source, is_observed, runs,
    parent_processor, parent_run_id)
SELECT batch.flow_id, batch.phase, batch.processor, batch.customer, {{now}}, batch.verdict,
    batch.source, batch.is_observed, batch.runs, batch.parent_processor,
    batch.parent_run_id
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (flow_id, phase, processor) DO NOTHING
RETURNING flow_id, phase, processor;

-- name: trigger_rows_for_flows
-- The triggers of flows.
-- scope: system (the caller may see the flows)
SELECT flow_id, phase, processor, at, verdict, source, is_observed, runs FROM triggers
WHERE flow_id {{any ids}} ORDER BY at, phase, processor;

-- name: decision_put_many
-- Insert decisions with their complete input.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, flow_id bigint, phase text, processor text,
--   partition text, mode text, verdict text, status text, completeness float8, quality float8,
--   input text, decision text, source text
INSERT INTO decisions (customer, pipeline, flow_id, phase, processor, partition, mode, at,
    verdict, status, completeness, quality, input, decision, source)
SELECT batch.customer, batch.pipeline, batch.flow_id, batch.phase, batch.processor,
    batch.partition, batch.mode, {{now}}, batch.verdict, batch.status, batch.completeness,
    batch.quality, batch.input, batch.decision, batch.source
FROM {{batch}} ORDER BY ord;

-- fragment: decision_filter
WHERE d.pipeline = :pipeline
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
    AND (CAST(:partition AS text) IS NULL OR d.partition = :partition)
    AND (CAST(:phase AS text) IS NULL OR d.phase = :phase)
    AND (CAST(:flow_id AS bigint) IS NULL OR d.flow_id = :flow_id)
    AND (CAST(:mode AS text) IS NULL OR d.mode = :mode)
    AND d.at >= :since AND d.at < :until AND d.decision_id < :before

-- name: decision_count
-- Number of decisions that match, whatever the page.
-- scope: system (a tenant's key adds :customer)
SELECT count(*) FROM decisions d {{decision_filter}};

-- name: decision_list
-- Decisions about partitions of a pipeline, newest first.
-- scope: system (a tenant's key adds :customer)
SELECT d.decision_id, c.customer_id, l.name, d.flow_id, d.phase, d.processor, d.partition, d.mode,
    d.at, d.verdict, d.status, d.completeness, d.quality, d.input, d.decision, d.source
FROM decisions d JOIN customers c ON c.customer = d.customer
JOIN pipelines l ON l.pipeline = d.pipeline
{{decision_filter}}
ORDER BY d.decision_id DESC LIMIT :limit;

-- name: decisions_prune
-- Delete old decisions, in chunks.
-- scope: system (retention)
DELETE FROM decisions WHERE decision_id IN (
    SELECT decision_id FROM decisions WHERE at < :before ORDER BY at LIMIT :n);

-- name: breaker_rows_for_flows
-- The breakers of the partitions of flows.
-- scope: system (the caller locked or may see the flows)
SELECT w.flow_id, b.phase, b.failures, b.opened_at, b.probe_at
FROM flows w {{lite:CROSS}} JOIN breakers b ON b.customer = w.customer
    AND b.pipeline = w.pipeline AND b.partition = w.partition
WHERE w.flow_id {{any ids}};

-- name: breaker_lock_for_flows [postgres]
-- Lock the breakers of the partitions of flows; all flows of a partition share them.
-- scope: system (the caller locked the flows)
SELECT b.phase FROM breakers b WHERE (b.customer, b.pipeline, b.partition) IN (
    SELECT w.customer, w.pipeline, w.partition FROM flows w WHERE w.flow_id {{any ids}})
ORDER BY b.customer, b.pipeline, b.partition, b.phase FOR UPDATE OF b;

-- name: breaker_lock_for_flows [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (the caller locked the flows)
SELECT 1 WHERE FALSE AND 0 {{any ids}};

-- name: breaker_put_many
-- Write the current state of breakers.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, partition text, phase text, failures bigint,
--   opened_at bigint, probe_at bigint
INSERT INTO breakers (customer, pipeline, partition, phase, failures, opened_at, probe_at,
    changed_at)
SELECT batch.customer, batch.pipeline, batch.partition, batch.phase, batch.failures,
    batch.opened_at, batch.probe_at, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4
ON CONFLICT (customer, pipeline, partition, phase) DO UPDATE SET failures = excluded.failures,
    opened_at = excluded.opened_at, probe_at = excluded.probe_at, changed_at = excluded.changed_at;

-- name: breakers_prune
-- Delete breakers that have not changed for a long time, in chunks.
-- scope: system (retention)
DELETE FROM breakers WHERE (customer, pipeline, partition, phase) IN (
    SELECT customer, pipeline, partition, phase FROM breakers WHERE changed_at < :before LIMIT :n);

-- fragment: override_columns
-- An override, in the order of `rows.OverrideRow`.
o.override_id, c.customer_id, l.name, o.partition, o.phase, o.processor, o.dependency, o.reason,
o.approved_by, o.approved_at, o.expires_at, o.source, o.notes, o.revoked_at, o.revoked_by

-- name: override_rows_for_flows
-- Overrides in force for the partitions of flows.
-- scope: system (the caller locked the flows)
SELECT w.flow_id, {{override_columns}}
FROM flows w {{lite:CROSS}} JOIN overrides o ON o.customer = w.customer
    AND o.pipeline = w.pipeline AND o.partition = w.partition
JOIN customers c ON c.customer = o.customer JOIN pipelines l ON l.pipeline = o.pipeline
WHERE w.flow_id {{any ids}} AND o.revoked_at IS NULL AND o.expires_at > {{now}}
ORDER BY o.override_id;

-- name: override_put
-- Grant an override.
-- scope: system (the caller has looked up the customer)
INSERT INTO overrides (customer, pipeline, partition, phase, processor, dependency, reason,
    approved_by, approved_at, expires_at, source, notes)
VALUES (:customer, :pipeline, :partition, :phase, :processor, :dependency, :reason, :approved_by,
    {{now}}, :expires_at, :source, :notes)
RETURNING override_id, approved_at;

-- name: override_revoke
-- Revoke an override; no row if it is not in force.
-- scope: system (a tenant's key adds :customer)
UPDATE overrides SET revoked_at = {{now}}, revoked_by = :actor
WHERE override_id = :override_id AND revoked_at IS NULL AND expires_at > {{now}}
    AND (CAST(:customer AS bigint) IS NULL OR overrides.customer = :customer)
RETURNING override_id;

-- name: override_list
-- Overrides, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{override_columns}}
FROM overrides o JOIN customers c ON c.customer = o.customer
JOIN pipelines l ON l.pipeline = o.pipeline
WHERE (CAST(:customer AS bigint) IS NULL OR o.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR o.pipeline = :pipeline)
    AND (CAST(:partition AS text) IS NULL OR o.partition = :partition)
    AND (CAST(:override_id AS bigint) IS NULL OR o.override_id = :override_id)
    AND (NOT CAST(:live AS boolean) OR (o.revoked_at IS NULL AND o.expires_at > {{now}}))
    AND o.override_id < :before
ORDER BY o.override_id DESC LIMIT :limit;

-- name: intervention_put_many
-- Insert interventions, one open row per gate.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, flow_id bigint, phase text, processor text,
--   partition text, missing text, reason text, tries bigint, correlation_id text, payload text
INSERT INTO interventions (customer, pipeline, flow_id, phase, processor, partition, missing,
    reason, tries, correlation_id, payload, opened_at)
SELECT batch.customer, batch.pipeline, batch.flow_id, batch.phase, batch.processor,
    batch.partition, batch.missing, batch.reason, batch.tries, batch.correlation_id,
    batch.payload, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (flow_id, phase, processor) WHERE status = 'open' DO UPDATE SET
    missing = excluded.missing, reason = excluded.reason, tries = excluded.tries,
    payload = excluded.payload;

-- name: intervention_close_many
-- Close interventions that are no longer needed: the gate lets the work start, or the flow has
-- ended.
-- scope: system (the caller locked the flows)
-- batch: flow_id bigint, phase text, processor text, resolution text
UPDATE interventions SET status = 'resolved', resolved_at = {{now}}, resolved_by = 'penstock',
    resolution = batch.resolution
FROM {{batch}} WHERE interventions.status = 'open' AND interventions.flow_id = batch.flow_id
    AND interventions.phase = batch.phase AND interventions.processor = batch.processor
    {{pg:AND interventions.flow_id = ANY(:b_flow_id::bigint[])}};

-- name: intervention_resolve
-- Resolve an intervention on behalf of a person.
-- scope: system (a tenant's key adds :customer)
UPDATE interventions SET status = 'resolved', resolved_at = {{now}}, resolved_by = :actor,
    resolution = :resolution
WHERE intervention_id = :intervention_id AND status = 'open'
    AND (CAST(:customer AS bigint) IS NULL OR interventions.customer = :customer)
RETURNING flow_id, customer, phase;

-- name: intervention_list
-- Interventions, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT i.intervention_id, c.customer_id, l.name, i.flow_id, i.phase, i.processor, i.partition,
    i.missing, i.reason, i.tries, i.correlation_id, i.payload, i.status, i.opened_at,
    i.resolved_at, i.resolved_by, i.resolution
FROM interventions i JOIN customers c ON c.customer = i.customer
JOIN pipelines l ON l.pipeline = i.pipeline
WHERE (CAST(:customer AS bigint) IS NULL OR i.customer = :customer)
    AND (CAST(:status AS text) IS NULL OR i.status = :status)
    AND (CAST(:intervention_id AS bigint) IS NULL OR i.intervention_id = :intervention_id)
    AND i.intervention_id < :before
ORDER BY i.intervention_id DESC LIMIT :limit;
