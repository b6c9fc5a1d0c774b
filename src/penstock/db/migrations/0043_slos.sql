-- migration: slos
-- breaking: no
-- Service levels: targets in force, the result of every flow and phase, and sums by hour.

-- both
-- What each pipeline must reach; customer 0: every customer without a target of its own. target:
-- microseconds, percent or score, by measure. objective: percent of results that must reach it.
CREATE TABLE slo_targets (
    pipeline bigint NOT NULL,
    mode text NOT NULL,
    phase text NOT NULL,
    measure text NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    target double precision,
    objective double precision NOT NULL,
    declared_at bigint NOT NULL,
    PRIMARY KEY (pipeline, mode, phase, measure, customer)
);

-- One row per ended flow (phase '') and per ended phase, or per one that passed its due time while
-- it was open; then ended_at follows. outcome: NULL without a target, or for a cancelled flow.
CREATE TABLE slo_results (
    result_id {{id}},
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    mode text NOT NULL,
    phase text NOT NULL,
    partition text NOT NULL,
    flow_id bigint NOT NULL,
    correlation_id text NOT NULL,
    began_at bigint NOT NULL,
    due_at bigint,
    ended_at bigint,
    outcome text CHECK (outcome IN ('met', 'missed')),
    is_degraded boolean NOT NULL,
    state text NOT NULL,
    at bigint NOT NULL,
    UNIQUE (flow_id, phase)
);
CREATE INDEX slo_results_of_pipeline ON slo_results (pipeline, mode, phase, at);
CREATE INDEX slo_results_by_time ON slo_results (at);
CREATE INDEX slo_results_missed ON slo_results (at, result_id) WHERE outcome = 'missed';
CREATE INDEX slo_results_late ON slo_results (result_id) WHERE outcome = 'missed' AND ended_at IS NULL;

-- Results that reached a target, and those that did not, by hour. Customer 0 is the sum of all.
CREATE TABLE slo_hours (
    pipeline bigint NOT NULL,
    customer bigint NOT NULL,
    hour_at bigint NOT NULL,
    mode text NOT NULL,
    phase text NOT NULL,
    measure text NOT NULL,
    good bigint NOT NULL,
    bad bigint NOT NULL,
    PRIMARY KEY (pipeline, customer, hour_at, mode, phase, measure)
);
CREATE INDEX slo_hours_by_time ON slo_hours (hour_at);
CREATE INDEX slo_hours_of_customer ON slo_hours (customer, hour_at);

-- Set when the violation of a freshness policy was announced; cleared when the table is fresh.
ALTER TABLE freshness ADD COLUMN announced_at bigint;

-- Runs that started late, for the list of breaches.
CREATE INDEX history_sla_missed ON history (finished_at, run_id) WHERE NOT sla_met;

-- only: postgres
CREATE FUNCTION tenant_rules_0043()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('slo_targets', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))'),
    ('slo_results', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())'),
    ('slo_hours', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())')
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();
