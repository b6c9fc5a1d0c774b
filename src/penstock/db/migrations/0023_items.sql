-- migration: items
-- breaking: yes
-- Fan-out: a processor declared with `each` has one run per item. `runs.item_key` is empty for
-- other runs; `runs.item` is the item as JSON, NULL if it is the text of its key.

-- both
ALTER TABLE runs ADD COLUMN item_key text NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN item text;
ALTER TABLE history ADD COLUMN item_key text NOT NULL DEFAULT '';
ALTER TABLE history ADD COLUMN item text;
DROP INDEX runs_once_per_slot;
DROP INDEX runs_once_per_flow;
CREATE UNIQUE INDEX runs_once_per_slot
    ON runs (customer, config_id, slot, processor, attempt, item_key);
CREATE UNIQUE INDEX runs_once_per_flow ON runs (flow_id, processor, attempt, item_key)
    WHERE flow_id IS NOT NULL;

-- The expansion of one processor in one flow. state: EVALUATING until its items are known, SEALED
-- once they are stored, FAILED if they cannot be determined, CANCELLED with its flow. created: runs
-- created so far. due_at: when the orchestrator continues it; NULL if there is nothing to do.
-- token: rises with every lease of an evaluation. The counts are those of ended items, without the
-- rows of item_counts.
CREATE TABLE expansions (
    flow_id bigint NOT NULL,
    processor bigint NOT NULL,
    customer bigint NOT NULL,
    phase text NOT NULL,
    name text NOT NULL,
    state text NOT NULL CHECK (state IN ('EVALUATING', 'SEALED', 'FAILED', 'CANCELLED')),
    source text NOT NULL,
    is_entry boolean NOT NULL,
    started_at bigint NOT NULL,
    sealed_at bigint,
    total bigint NOT NULL DEFAULT 0,
    created bigint NOT NULL DEFAULT 0,
    succeeded bigint NOT NULL DEFAULT 0,
    partial bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    records bigint NOT NULL DEFAULT 0,
    due_at bigint,
    token bigint NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0,
    error text,
    PRIMARY KEY (flow_id, processor)
) {{fillfactor 70}};
CREATE INDEX expansions_due ON expansions (due_at, flow_id) WHERE due_at IS NOT NULL;

-- Items whose runs are still to be created, in lists of bounded length; deleted with their creation.
CREATE TABLE expansion_items (
    flow_id bigint NOT NULL,
    processor bigint NOT NULL,
    position bigint NOT NULL,
    customer bigint NOT NULL,
    items text NOT NULL,
    PRIMARY KEY (flow_id, processor, position)
);

-- Once per item; a later end may only improve it.
CREATE TABLE item_completions (
    flow_id bigint NOT NULL,
    processor bigint NOT NULL,
    item_key text NOT NULL,
    customer bigint NOT NULL,
    status text NOT NULL CHECK (status IN ('success', 'partial', 'failed')),
    at bigint NOT NULL,
    run_id bigint NOT NULL,
    records bigint,
    error_type text,
    PRIMARY KEY (flow_id, processor, item_key)
);
CREATE INDEX item_completions_failed ON item_completions (flow_id, processor, item_key)
    WHERE status = 'failed';

-- What each transaction that ends items adds to the counts of their expansion, so that they never
-- wait for each other; the orchestrator adds the rows up and deletes them.
CREATE TABLE item_counts (
    count_id {{id}},
    flow_id bigint NOT NULL,
    processor bigint NOT NULL,
    customer bigint NOT NULL,
    succeeded bigint NOT NULL,
    partial bigint NOT NULL,
    failed bigint NOT NULL,
    records bigint NOT NULL
);
CREATE INDEX item_counts_of_flow ON item_counts (flow_id);

-- only: postgres
CREATE FUNCTION tenant_rules_0023()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('expansions', 'SELECT, INSERT, UPDATE'),
    ('expansion_items', 'SELECT, INSERT, DELETE'),
    ('item_completions', 'SELECT, INSERT, UPDATE'),
    ('item_counts', 'SELECT, INSERT, DELETE')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
ALTER TABLE item_counts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
