-- migration: analytics
-- breaking: no
-- Counters of ended runs, failures, dependency checks, phases and flows, folded from the logs. Rows of
-- customer 0 are the sums of all customers.

-- both
CREATE TABLE run_counts (
    customer bigint NOT NULL,
    at bigint NOT NULL,
    processor bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    retried bigint NOT NULL,
    late bigint NOT NULL,
    slow bigint NOT NULL,
    duration_us bigint NOT NULL,
    PRIMARY KEY (customer, at, processor)
);
CREATE INDEX run_counts_by_time ON run_counts (at);

CREATE TABLE failure_counts (
    customer bigint NOT NULL,
    day_at bigint NOT NULL,
    processor bigint NOT NULL,
    error_type text NOT NULL,
    message text NOT NULL,
    failures bigint NOT NULL,
    last_at bigint NOT NULL,
    last_run_id bigint NOT NULL,
    PRIMARY KEY (customer, day_at, processor, error_type, message)
);
CREATE INDEX failure_counts_by_time ON failure_counts (day_at);

-- Histograms of durations; kind: run (subject: processor) or flow (subject: pipeline).
CREATE TABLE duration_counts (
    customer bigint NOT NULL,
    kind text NOT NULL,
    day_at bigint NOT NULL,
    subject bigint NOT NULL,
    mode text NOT NULL,
    bucket integer NOT NULL,
    items bigint NOT NULL,
    PRIMARY KEY (customer, kind, day_at, subject, mode, bucket)
);
CREATE INDEX duration_counts_by_time ON duration_counts (day_at);

CREATE TABLE slow_runs (
    run_id {{pg:bigint NOT NULL PRIMARY KEY}}{{lite:integer PRIMARY KEY}},
    customer bigint NOT NULL,
    processor bigint NOT NULL,
    ended_at bigint NOT NULL,
    duration_us bigint NOT NULL
);
CREATE INDEX slow_runs_by_time ON slow_runs (ended_at);
CREATE INDEX slow_runs_of_customer ON slow_runs (customer, ended_at);

CREATE TABLE check_counts (
    customer bigint NOT NULL,
    day_at bigint NOT NULL,
    pipeline bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL,
    relation text NOT NULL,
    kind text NOT NULL,
    checks bigint NOT NULL,
    missing bigint NOT NULL,
    degraded bigint NOT NULL,
    blocked_us bigint NOT NULL,
    last_missing_at bigint NOT NULL,
    PRIMARY KEY (customer, day_at, pipeline, phase, processor, relation, kind)
);
CREATE INDEX check_counts_by_time ON check_counts (day_at);

-- Completeness of tables at the last check of each gate, by the day of the partition.
CREATE TABLE table_counts (
    customer bigint NOT NULL,
    day_at bigint NOT NULL,
    pipeline bigint NOT NULL,
    relation text NOT NULL,
    gates bigint NOT NULL,
    completeness double precision NOT NULL,
    PRIMARY KEY (customer, day_at, pipeline, relation)
);
CREATE INDEX table_counts_by_time ON table_counts (day_at);

CREATE TABLE phase_counts (
    customer bigint NOT NULL,
    day_at bigint NOT NULL,
    pipeline bigint NOT NULL,
    phase text NOT NULL,
    mode text NOT NULL,
    ended bigint NOT NULL,
    completed bigint NOT NULL,
    expected_processors bigint NOT NULL,
    completed_processors bigint NOT NULL,
    qualities bigint NOT NULL,
    quality double precision NOT NULL,
    duration_us bigint NOT NULL,
    PRIMARY KEY (customer, day_at, pipeline, phase, mode)
);
CREATE INDEX phase_counts_by_time ON phase_counts (day_at);

CREATE TABLE flow_counts (
    customer bigint NOT NULL,
    day_at bigint NOT NULL,
    pipeline bigint NOT NULL,
    mode text NOT NULL,
    state text NOT NULL,
    flows bigint NOT NULL,
    duration_us bigint NOT NULL,
    longest_us bigint NOT NULL,
    PRIMARY KEY (customer, day_at, pipeline, mode, state)
);
CREATE INDEX flow_counts_by_time ON flow_counts (day_at);

-- The checks of a gate before the one that is counted.
CREATE INDEX dependency_check_log_of_flow ON dependency_check_log (flow_id);
-- Executions that used an override are few.
CREATE INDEX execution_log_overridden ON execution_log (completed_at) WHERE manual_override_used;

-- only: postgres
CREATE FUNCTION tenant_rules_0042()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, 'SELECT',
    '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())', NULL
FROM (VALUES ('run_counts'), ('failure_counts'), ('duration_counts'), ('slow_runs'), ('check_counts'),
    ('table_counts'), ('phase_counts'), ('flow_counts')) AS v (relation)
$$;
SELECT tenant_wall();
