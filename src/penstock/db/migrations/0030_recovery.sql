-- migration: recovery
-- breaking: no
-- Backfills and their partitions; chosen entities of a replay; durations of phases by pipeline.

-- both
-- existing: which partitions that were processed before are processed again. failures_max: pause
-- after so many failed partitions; NULL: never. note: why a backfill is paused or ended.
CREATE TABLE backfills (
    backfill_id {{id}},
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    config_id bigint NOT NULL,
    mode text NOT NULL,
    first_partition text NOT NULL,
    last_partition text NOT NULL,
    state text NOT NULL CHECK (state IN ('RUNNING', 'PAUSED', 'COMPLETE', 'FAILED', 'CANCELLED')),
    parallelism integer NOT NULL,
    is_backward boolean NOT NULL,
    existing text NOT NULL CHECK (existing IN ('incomplete', 'missing', 'all')),
    failures_max integer,
    start_phases text NOT NULL,
    no_downstream boolean NOT NULL,
    one_pass boolean NOT NULL,
    parameters text,
    priority smallint NOT NULL,
    correlation_id text NOT NULL,
    reason text NOT NULL,
    opened_by text NOT NULL,
    note text,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    ended_at bigint
);
CREATE INDEX backfills_live ON backfills (backfill_id) WHERE ended_at IS NULL;
CREATE INDEX backfills_of_customer ON backfills (customer, backfill_id);
CREATE INDEX backfills_ended ON backfills (ended_at) WHERE ended_at IS NOT NULL;

-- position: order in which the partitions start, from 1.
CREATE TABLE backfill_partitions (
    backfill_id bigint NOT NULL,
    position integer NOT NULL,
    customer bigint NOT NULL,
    partition text NOT NULL,
    state text NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'COMPLETE', 'DEGRADED', 'FAILED',
        'CANCELLED', 'SKIPPED')),
    flow_id bigint,
    attempts integer NOT NULL DEFAULT 0,
    started_at bigint,
    ended_at bigint,
    note text,
    PRIMARY KEY (backfill_id, position)
);
CREATE INDEX backfill_partitions_pending ON backfill_partitions (backfill_id, position)
    WHERE state = 'PENDING';
CREATE INDEX backfill_partitions_watched ON backfill_partitions (backfill_id, flow_id)
    WHERE state IN ('RUNNING', 'FAILED');
CREATE INDEX backfill_partitions_of_flow ON backfill_partitions (flow_id) WHERE flow_id IS NOT NULL;

CREATE INDEX phase_completion_log_for_phase
    ON phase_completion_log (customer, pipeline, phase, completed_at);

-- Ids by kind that a replay chose for a processor, as JSON; NULL: what the reports name.
ALTER TABLE entity_inputs ADD COLUMN chosen text;

-- only: postgres
CREATE FUNCTION tenant_rules_0030()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, 'customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('backfills', 'SELECT, INSERT, UPDATE'),
    ('backfill_partitions', 'SELECT, INSERT, UPDATE')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
