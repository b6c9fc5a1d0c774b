-- migration: context
-- breaking: no
-- What runs did with their results, their artifacts, and the checkpoints that next attempts read.

-- both
-- An action of a run. subject: id of the message, run or flow that it made; action_key: the
-- caller's key, for which the action is performed once per customer and processor.
CREATE TABLE run_actions (
    run_id bigint NOT NULL,
    n integer NOT NULL,
    customer bigint NOT NULL,
    processor bigint NOT NULL,
    kind text NOT NULL,
    target text NOT NULL,
    partition text,
    action_key text,
    subject bigint,
    is_repeat boolean NOT NULL DEFAULT FALSE,
    at bigint NOT NULL,
    PRIMARY KEY (run_id, n)
);
CREATE UNIQUE INDEX run_actions_by_key ON run_actions (customer, processor, kind, action_key)
    WHERE action_key IS NOT NULL;
CREATE INDEX run_actions_by_subject ON run_actions (subject, kind);
CREATE INDEX run_actions_by_time ON run_actions (at);

CREATE TABLE run_artifacts (
    run_id bigint NOT NULL,
    name text NOT NULL,
    customer bigint NOT NULL,
    uri text NOT NULL,
    size bigint,
    checksum text,
    media_type text,
    at bigint NOT NULL,
    PRIMARY KEY (run_id, name)
);
CREATE INDEX run_artifacts_by_time ON run_artifacts (at);

-- The checkpoint of a chain of attempts; token: fencing token of the attempt that saved it.
CREATE TABLE run_states (
    root_run_id bigint PRIMARY KEY,
    customer bigint NOT NULL,
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    state text NOT NULL,
    saved_at bigint NOT NULL
);
CREATE INDEX run_states_by_time ON run_states (saved_at);

-- only: postgres
CREATE FUNCTION tenant_rules_0025()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, 'customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('run_actions', 'SELECT, INSERT, UPDATE'),
    ('run_artifacts', 'SELECT, INSERT'),
    ('run_states', 'SELECT, INSERT, UPDATE')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
