-- migration: cascade
-- breaking: no
-- Flows that advance by themselves: phases, completions, gates, people's approvals, and their logs.

-- both
-- Every declaration a flow was opened with: a flow ends as it began, whatever is declared since.
CREATE TABLE definitions (
    pipeline bigint NOT NULL REFERENCES pipelines (pipeline),
    digest text NOT NULL,
    definition text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (pipeline, digest)
);
INSERT INTO definitions (pipeline, digest, definition, created_at)
SELECT pipeline, digest, definition, updated_at FROM pipelines;

-- Flows of before had no life of their own: whatever they started is in the queue or over.
UPDATE flows SET state = 'COMPLETE', ended_at = created_at WHERE ended_at IS NULL;
ALTER TABLE flows ADD COLUMN digest text NOT NULL DEFAULT '';
ALTER TABLE flows ADD COLUMN start_phase text;
ALTER TABLE flows ADD COLUMN parent_flow_id bigint;
ALTER TABLE flows ADD COLUMN deadline_at bigint;
ALTER TABLE flows ADD COLUMN no_downstream boolean NOT NULL DEFAULT FALSE;
ALTER TABLE flows ADD COLUMN is_degraded boolean NOT NULL DEFAULT FALSE;
ALTER TABLE flows ADD COLUMN missing text NOT NULL DEFAULT '[]';
ALTER TABLE flows ADD COLUMN slot bigint NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN start_at bigint;
ALTER TABLE flows ADD COLUMN start_gap bigint NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN priority smallint NOT NULL DEFAULT 5;
ALTER TABLE flows ADD COLUMN is_ordered boolean NOT NULL DEFAULT FALSE;
ALTER TABLE flows ADD COLUMN parameters text;
ALTER TABLE flows ADD COLUMN opened_by text NOT NULL DEFAULT 'scheduler';
CREATE INDEX flows_due ON flows (deadline_at, flow_id) WHERE ended_at IS NULL;
CREATE INDEX flows_open_of_config ON flows (config_id) WHERE ended_at IS NULL;
CREATE INDEX flows_ended ON flows (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX flows_for_correlation ON flows (correlation_id);

-- Generation numbers outlive the flows that had them. reruns: started by late data.
CREATE TABLE generations (
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    config_id bigint NOT NULL,
    partition text NOT NULL,
    mode text NOT NULL,
    generation integer NOT NULL,
    reruns integer NOT NULL DEFAULT 0,
    changed_at bigint NOT NULL,
    PRIMARY KEY (customer, pipeline, config_id, partition, mode)
) {{fillfactor 80}};
INSERT INTO generations (customer, pipeline, config_id, partition, mode, generation, changed_at)
SELECT customer, pipeline, config_id, partition, mode, max(generation), max(created_at) FROM flows
GROUP BY customer, pipeline, config_id, partition, mode;

-- A phase of a flow, and (on="each") the gate of one of its processors. look_at: when somebody has
-- to look at it again, for its data or its stragglers. gate: what was decided, as its runs get it.
CREATE TABLE flow_phases (
    gate_id {{id}},
    flow_id bigint NOT NULL,
    customer bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL DEFAULT '',
    state text NOT NULL CHECK (state IN ('PENDING', 'WAITING', 'BLOCKED', 'IN_PROGRESS',
        'COMPLETE', 'DEGRADED', 'FAILED', 'SKIPPED')),
    since_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    look_at bigint,
    look_again boolean NOT NULL DEFAULT FALSE,
    waiting_since bigint,
    tries integer NOT NULL DEFAULT 0,
    is_degraded boolean NOT NULL DEFAULT FALSE,
    gate text,
    evidence text,
    UNIQUE (flow_id, phase, processor)
) {{fillfactor 70}};
CREATE INDEX flow_phases_due ON flow_phases (look_at, flow_id) WHERE look_at IS NOT NULL;

-- Once per flow and processor; a later report may only better an earlier one.
CREATE TABLE completions (
    flow_id bigint NOT NULL,
    processor bigint NOT NULL,
    customer bigint NOT NULL,
    status text NOT NULL CHECK (status IN ('success', 'partial', 'failed')),
    at bigint NOT NULL,
    run_id bigint,
    execution_id text,
    records bigint,
    quality double precision,
    entities text,
    PRIMARY KEY (flow_id, processor)
);

-- Once per flow, phase and (on="each") processor.
CREATE TABLE triggers (
    flow_id bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL DEFAULT '',
    customer bigint NOT NULL,
    at bigint NOT NULL,
    verdict text NOT NULL,
    source text NOT NULL,
    is_observed boolean NOT NULL DEFAULT FALSE,
    runs integer NOT NULL,
    PRIMARY KEY (flow_id, phase, processor)
);

-- Something happened to a flow: append-only, contended for by nobody, deleted by who acts on it.
CREATE TABLE nudges (
    nudge_id {{id}},
    flow_id bigint NOT NULL,
    customer bigint NOT NULL,
    phase text,
    is_failure boolean NOT NULL DEFAULT FALSE,
    at bigint NOT NULL
);

-- Every decision with its whole input, so that it can be replayed.
CREATE TABLE decisions (
    decision_id {{id}},
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    flow_id bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL DEFAULT '',
    partition text NOT NULL,
    mode text NOT NULL,
    at bigint NOT NULL,
    verdict text NOT NULL,
    status text NOT NULL,
    completeness double precision NOT NULL,
    quality double precision NOT NULL,
    input text NOT NULL,
    decision text NOT NULL,
    source text NOT NULL
);
CREATE INDEX decisions_for_partition ON decisions (customer, pipeline, partition, at);
CREATE INDEX decisions_for_flow ON decisions (flow_id, at);
CREATE INDEX decisions_by_time ON decisions (at);

CREATE TABLE overrides (
    override_id {{id}},
    customer bigint NOT NULL REFERENCES customers (customer),
    pipeline bigint NOT NULL REFERENCES pipelines (pipeline),
    partition text NOT NULL,
    phase text,
    processor text,
    dependency text,
    reason text NOT NULL CHECK (reason <> ''),
    approved_by text NOT NULL CHECK (approved_by <> ''),
    approved_at bigint NOT NULL,
    expires_at bigint NOT NULL CHECK (expires_at > approved_at),
    source text NOT NULL DEFAULT '',
    notes text NOT NULL DEFAULT '',
    revoked_at bigint,
    revoked_by text
);
CREATE INDEX overrides_for_partition ON overrides (customer, pipeline, partition);

CREATE TABLE interventions (
    intervention_id {{id}},
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    flow_id bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL DEFAULT '',
    partition text NOT NULL,
    missing text NOT NULL,
    reason text NOT NULL,
    tries integer NOT NULL,
    correlation_id text,
    payload text,
    status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'resolved')),
    opened_at bigint NOT NULL,
    resolved_at bigint,
    resolved_by text,
    resolution text
);
CREATE UNIQUE INDEX interventions_once_while_open ON interventions (flow_id, phase, processor)
    WHERE status = 'open';
CREATE INDEX interventions_for_customer ON interventions (customer, opened_at);

CREATE TABLE breakers (
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    partition text NOT NULL,
    phase text NOT NULL,
    failures integer NOT NULL,
    opened_at bigint,
    probe_at bigint,
    changed_at bigint NOT NULL,
    PRIMARY KEY (customer, pipeline, partition, phase)
);

-- One row per finished execution of a flow, from the history row that exists anyway.
CREATE TABLE execution_log (
    execution_id bigint NOT NULL,
    source_execution_id bigint,
    correlation_id text NOT NULL,
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    flow_id bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL,
    event_type text NOT NULL,
    partition text NOT NULL,
    mode text NOT NULL,
    affected_entities text,
    status text NOT NULL CHECK (status IN ('completed', 'failed', 'skipped')),
    started_at bigint,
    completed_at bigint NOT NULL,
    duration_us bigint,
    dependencies_met boolean,
    dependency_check_result text,
    dependency_failure_type text,
    missing_dependencies text,
    stale_dependencies text,
    message_acknowledgment text,
    manual_override_used boolean NOT NULL DEFAULT FALSE,
    override_reason text,
    error_type text,
    error_message text,
    retry_count integer NOT NULL,
    message_id text,
    subscription text,
    records_processed bigint,
    records_inserted bigint,
    records_updated bigint,
    trigger_source text NOT NULL,
    parent_processor text,
    alert_sent boolean NOT NULL DEFAULT FALSE,
    alert_type text,
    service text,
    revision text,
    metadata text
) {{pg:PARTITION BY RANGE (completed_at)}};
CREATE INDEX execution_log_for_correlation ON execution_log (correlation_id);
CREATE INDEX execution_log_for_partition ON execution_log (customer, partition);

-- One row per ended phase; a straggler may still better it.
CREATE TABLE phase_completion_log (
    completion_id {{id}},
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    flow_id bigint NOT NULL,
    phase text NOT NULL,
    partition text NOT NULL,
    mode text NOT NULL,
    status text NOT NULL,
    started_at bigint,
    completed_at bigint NOT NULL,
    duration_us bigint,
    expected_processor_count integer NOT NULL,
    completed_processor_count integer NOT NULL,
    processors_completed text NOT NULL,
    processors_missing text NOT NULL,
    overall_completeness double precision NOT NULL,
    overall_quality double precision,
    dependencies_met boolean NOT NULL,
    dependency_issues text NOT NULL,
    triggered_downstream boolean NOT NULL DEFAULT FALSE,
    triggered_at bigint,
    downstream_phase text,
    correlation_id text NOT NULL,
    inserted_at bigint NOT NULL,
    UNIQUE (flow_id, phase)
);
CREATE INDEX phase_completion_log_for_partition ON phase_completion_log (customer, partition);
CREATE INDEX phase_completion_log_by_time ON phase_completion_log (inserted_at);

-- One row per table per changed check.
CREATE TABLE dependency_check_log (
    check_id {{id}},
    check_time bigint NOT NULL,
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    flow_id bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL DEFAULT '',
    partition text NOT NULL,
    mode text NOT NULL,
    required_table text NOT NULL,
    kind text NOT NULL,
    partition_spec text,
    expected_rows bigint,
    found_rows bigint,
    completeness_pct double precision NOT NULL,
    quality_score double precision NOT NULL,
    freshness_seconds bigint,
    check_status text NOT NULL,
    issues text NOT NULL,
    contributed_to_decision text NOT NULL,
    correlation_id text NOT NULL
);
CREATE INDEX dependency_check_log_for_partition ON dependency_check_log (customer, partition);
CREATE INDEX dependency_check_log_for_table ON dependency_check_log (required_table, check_time);
CREATE INDEX dependency_check_log_by_time ON dependency_check_log (check_time);

-- What the orchestrator did, as the journal has it, and what processors did, as their log has it.
CREATE VIEW orchestration_events AS
SELECT j.seq AS event_id, j.at AS event_time, j.action AS event_type, j.customer, j.subject AS flow_id,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'phase' AS phase,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'partition' AS partition,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'mode' AS processing_mode,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'correlation_id' AS correlation_id,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'processor' AS processor_name,
    CAST(NULL AS bigint) AS execution_id, j.to_state AS processor_status,
    CAST(NULL AS bigint) AS record_count,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'verdict' AS decision, j.why AS reason,
    j.actor AS orchestrator_instance
FROM journal j WHERE j.kind = 'flow'
UNION ALL
SELECT e.execution_id, e.completed_at, 'completion', e.customer, e.flow_id, e.phase, e.partition,
    e.mode, e.correlation_id, e.processor, e.execution_id, e.status, e.records_processed,
    NULL, e.error_message, e.service
FROM execution_log e;

-- only: sqlite
CREATE INDEX execution_log_by_end ON execution_log (completed_at);
CREATE UNIQUE INDEX execution_log_once ON execution_log (execution_id);

-- only: postgres
CREATE TABLE execution_log_rest PARTITION OF execution_log DEFAULT;
CREATE INDEX execution_log_by_end ON execution_log USING brin (completed_at);
CREATE INDEX execution_log_by_id ON execution_log (execution_id);
ALTER TABLE nudges SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE flow_phases SET (autovacuum_vacuum_scale_factor = 0.05);

-- As before, and for the execution log too.
CREATE OR REPLACE FUNCTION ensure_partitions(at_us bigint, weeks bigint) RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '100ms' AS
$$
DECLARE
    week_us constant bigint := 604800000000;
    base bigint := at_us - at_us % week_us;
    made integer := 0;
    parent record;
    part text;
    lower_us bigint;
    taken boolean;
BEGIN
    FOR parent IN SELECT * FROM (VALUES
        ('history', 'finished_at'), ('journal', 'at'), ('execution_log', 'completed_at')) AS p (name, at)
    LOOP
        FOR i IN 0..weeks LOOP
            lower_us := base + i * week_us;
            part := parent.name || '_' || to_char(to_timestamp(lower_us / 1000000) AT TIME ZONE 'UTC', 'YYYYMMDD');
            CONTINUE WHEN to_regclass(part) IS NOT NULL;
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE %I >= $1 AND %I < $2)',
                parent.name || '_rest', parent.at, parent.at)
                INTO taken USING lower_us, lower_us + week_us;
            CONTINUE WHEN taken;
            EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%s) TO (%s)',
                part, parent.name, lower_us, lower_us + week_us);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;
SELECT ensure_partitions(db_now(), 4);

-- The wall grows by the tables above; safe to call again, like the part it stands on.
ALTER FUNCTION tenant_wall() RENAME TO tenant_wall_api;
CREATE FUNCTION tenant_wall() RETURNS boolean LANGUAGE plpgsql AS
$$
DECLARE
    own constant text := 'customer = (SELECT nullif(current_setting(''penstock.customer'', true), '''')::bigint)';
    stands boolean := tenant_wall_api();
    rule record;
BEGIN
    IF to_regrole('penstock_tenant') IS NULL THEN
        RETURN stands;
    END IF;
    GRANT SELECT ON definitions TO penstock_tenant;
    FOR rule IN
        SELECT * FROM (VALUES
            ('generations', 'SELECT, INSERT, UPDATE'),
            ('flow_phases', 'SELECT, INSERT, UPDATE'),
            ('completions', 'SELECT, INSERT, UPDATE'),
            ('triggers', 'SELECT, INSERT'),
            ('nudges', 'SELECT, INSERT'),
            ('decisions', 'SELECT, INSERT'),
            ('overrides', 'SELECT, INSERT, UPDATE'),
            ('interventions', 'SELECT, INSERT, UPDATE'),
            ('breakers', 'SELECT, INSERT, UPDATE, DELETE'),
            ('execution_log', 'SELECT, INSERT'),
            ('phase_completion_log', 'SELECT, INSERT, UPDATE'),
            ('dependency_check_log', 'SELECT, INSERT')
        ) AS rules (relation, privileges)
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', rule.relation);
        EXECUTE format('GRANT %s ON %I TO penstock_tenant', rule.privileges, rule.relation);
        IF EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = rule.relation::regclass AND polname = 'one_customer') THEN
            EXECUTE format('DROP POLICY one_customer ON %I', rule.relation);
        END IF;
        EXECUTE format('CREATE POLICY one_customer ON %I TO penstock_tenant USING (%s) WITH CHECK (%s)',
            rule.relation, own, own);
    END LOOP;
    RETURN stands;
END
$$;
SELECT tenant_wall();
