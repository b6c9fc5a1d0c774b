-- migration: tracking
-- breaking: no
-- Who executed and what caused it: runs that led to a start, failed deliveries, revisions of
-- services; indexes by which a trace finds everything of one cause.

-- both
ALTER TABLE triggers ADD COLUMN parent_run_id bigint;
-- source_execution_id names the execution that caused a row, retry_of the attempt before it;
-- definition: digest of the pipeline's declaration; overrides: ids of the overrides it used.
ALTER TABLE execution_log ADD COLUMN retry_of bigint;
ALTER TABLE execution_log ADD COLUMN definition text;
ALTER TABLE execution_log ADD COLUMN overrides text;
ALTER TABLE execution_log ADD COLUMN was_retried boolean NOT NULL DEFAULT FALSE;

ALTER TABLE messages ADD COLUMN correlation_id text;
ALTER TABLE deliveries ADD COLUMN leased_at bigint;
ALTER TABLE settled ADD COLUMN started_at bigint;
ALTER TABLE settled ADD COLUMN holder text;

-- Attempts of deliveries that did not end with an ack; action: nack, lapsed or dead_letter.
CREATE TABLE delivery_failures (
    failure_id {{id}},
    subscription bigint NOT NULL,
    message_id bigint NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    round smallint NOT NULL,
    attempt integer NOT NULL,
    action text NOT NULL,
    error_type text NOT NULL,
    error text NOT NULL,
    holder text,
    started_at bigint,
    at bigint NOT NULL
);
CREATE INDEX delivery_failures_of_message ON delivery_failures (message_id);
CREATE INDEX delivery_failures_by_time ON delivery_failures (at);

-- The service and revision under which a holder executes from a time on.
CREATE TABLE revisions (
    holder text NOT NULL,
    since_at bigint NOT NULL,
    service text NOT NULL,
    revision text NOT NULL,
    PRIMARY KEY (holder, since_at)
);

CREATE INDEX messages_for_correlation ON messages (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX runs_for_correlation ON runs (correlation_id)
    WHERE correlation_id IS NOT NULL AND flow_id IS NULL;
CREATE INDEX runs_for_message ON runs (trigger_message_id) WHERE trigger_message_id IS NOT NULL;
CREATE INDEX flows_for_message ON flows (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX completions_by_execution ON completions (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX completion_ids_by_execution ON completion_ids (execution_id);
CREATE INDEX entity_changes_of_run ON entity_changes (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX alerts_of_subject ON alerts (subject_kind, subject);

-- only: postgres
CREATE FUNCTION tenant_rules_0028()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'delivery_failures', 'SELECT, INSERT', 'customer = (SELECT tenant_customer())', CAST(NULL AS text)
UNION ALL
SELECT 'revisions', 'SELECT', 'open', NULL
$$;
SELECT tenant_wall();
