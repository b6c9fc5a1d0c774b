-- migration: run_gates
-- breaking: no
-- Gates of single runs: a run that a person, a program or a message submits waits here until the
-- gate of its processor lets it start. `probe_at`: when the gate is evaluated next; NULL once it
-- has decided. `token`: rises with every lease of a probe, and a result under an older one is
-- dropped. `context`: what the run is given about the data that is missing.

-- both
CREATE TABLE run_gates (
    run_id bigint PRIMARY KEY,
    customer bigint NOT NULL,
    pipeline bigint NOT NULL,
    phase text NOT NULL,
    processor text NOT NULL,
    partition text NOT NULL,
    mode text NOT NULL,
    source text NOT NULL,
    correlation_id text,
    opened_at bigint NOT NULL,
    deadline_at bigint NOT NULL,
    probe_at bigint,
    token bigint NOT NULL DEFAULT 0,
    waiting_since bigint,
    tries integer NOT NULL DEFAULT 0,
    verdict text,
    status text,
    reason text,
    context text
);
CREATE INDEX run_gates_due ON run_gates (probe_at, run_id) WHERE probe_at IS NOT NULL;
CREATE INDEX run_gates_for_partition ON run_gates (customer, pipeline, partition)
    WHERE probe_at IS NOT NULL;
CREATE INDEX run_gates_by_time ON run_gates (opened_at);

-- only: postgres
CREATE FUNCTION tenant_rules_0012()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('run_gates', 'SELECT, INSERT, UPDATE', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())')
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();
