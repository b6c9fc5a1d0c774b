-- migration: entities
-- breaking: no
-- Entities that processors changed, and what incremental processors receive of them. Completions
-- keep the completeness that was reported with them.

-- both
ALTER TABLE completions ADD COLUMN total_expected bigint;
ALTER TABLE completions ADD COLUMN completeness_pct double precision;
-- The flow whose reports an inherited completion stands for; NULL: its own.
ALTER TABLE completions ADD COLUMN reported_in bigint;
-- 1: receives changes; 2: its changes are received; 4: it has to report them.
ALTER TABLE processors ADD COLUMN entity_role integer NOT NULL DEFAULT 0;

-- One report of an execution. `epoch`: the first start of an incremental processor that received
-- it; NULL before; 0 if no processor receives it. `unknown`: why its changes are not known;
-- `is_reported`: whether the processor itself reported so.
CREATE TABLE entity_changes (
    change_id {{id}},
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    config_id bigint NOT NULL DEFAULT 0,
    processor bigint NOT NULL,
    flow_id bigint,
    partition text,
    mode text,
    run_id bigint,
    execution_id text,
    correlation_id text,
    at bigint NOT NULL,
    epoch bigint,
    counts text NOT NULL,
    unknown text,
    is_reported boolean NOT NULL
);
CREATE INDEX entity_changes_new ON entity_changes (customer, pipeline, config_id)
    WHERE epoch IS NULL;
CREATE INDEX entity_changes_by_epoch ON entity_changes (customer, pipeline, config_id, epoch)
    WHERE epoch > 0;
CREATE INDEX entity_changes_of_flow ON entity_changes (flow_id, processor);
CREATE INDEX entity_changes_by_time ON entity_changes (at);

CREATE TABLE entity_ids (
    change_id bigint NOT NULL,
    kind text NOT NULL,
    entity text NOT NULL,
    customer bigint NOT NULL,
    is_number boolean NOT NULL,
    PRIMARY KEY (change_id, kind, entity)
);
CREATE INDEX entity_ids_of_entity ON entity_ids (customer, kind, entity, change_id);

-- The number of the last start of an incremental processor in the flows of a customer, pipeline and
-- config; changes up to `pruned_to` were deleted.
CREATE TABLE entity_epochs (
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    config_id bigint NOT NULL,
    epoch bigint NOT NULL,
    pruned_to bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (customer, pipeline, config_id)
);

-- What an incremental processor has processed: everything up to `epoch`.
CREATE TABLE entity_watermarks (
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    config_id bigint NOT NULL,
    processor bigint NOT NULL,
    partition text NOT NULL,
    epoch bigint NOT NULL,
    signature text NOT NULL,
    flow_id bigint NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (customer, pipeline, config_id, processor, partition)
);
CREATE INDEX entity_watermarks_by_time ON entity_watermarks (at);

-- What an incremental processor of a flow receives, on every attempt. `partition`: '' unless it
-- receives changes of its own partition only. `changes`: ids of reports; `reason`: why it receives
-- everything instead. `moves`: whether its success moves the watermark.
CREATE TABLE entity_inputs (
    flow_id bigint NOT NULL,
    processor bigint NOT NULL,
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    config_id bigint NOT NULL,
    partition text NOT NULL,
    epoch bigint NOT NULL,
    signature text NOT NULL,
    kinds text NOT NULL,
    changes text NOT NULL,
    reason text,
    moves boolean NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (flow_id, processor)
);

-- only: postgres
CREATE FUNCTION tenant_rules_0027()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges,
    '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('entity_changes', 'SELECT, INSERT, UPDATE'),
    ('entity_ids', 'SELECT, INSERT'),
    ('entity_epochs', 'SELECT, INSERT, UPDATE'),
    ('entity_watermarks', 'SELECT, INSERT, UPDATE'),
    ('entity_inputs', 'SELECT, INSERT')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
