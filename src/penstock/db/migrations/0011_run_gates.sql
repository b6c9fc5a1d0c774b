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
CREATE FUNCTION tenant_rules_0011()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('run_gates', 'SELECT, INSERT, UPDATE', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())')
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();

-- Alerts are announced on the topic `penstock.alerts` when they open and when they are resolved,
-- whatever code does it. The outbox publisher turns the row into the public record.
CREATE FUNCTION alert_announce() RETURNS trigger LANGUAGE plpgsql AS
$$
BEGIN
    INSERT INTO outbox (topic, payload, created_at)
    SELECT t.name, json_build_object('alert_id', NEW.alert_id, 'state', NEW.state)::text,
        coalesce(NEW.closed_at, NEW.last_at)
    FROM topics t WHERE t.customer = 0 AND t.name = 'penstock.alerts';
    RETURN NULL;
END
$$;
CREATE TRIGGER alert_opened AFTER INSERT ON alerts
    FOR EACH ROW EXECUTE FUNCTION alert_announce();
CREATE TRIGGER alert_resolved AFTER UPDATE OF state ON alerts
    FOR EACH ROW WHEN (OLD.state <> NEW.state AND NEW.state = 'resolved')
    EXECUTE FUNCTION alert_announce();

-- only: sqlite
CREATE TRIGGER alert_opened AFTER INSERT ON alerts
BEGIN
    INSERT INTO outbox (topic, payload, created_at)
    SELECT t.name, json_object('alert_id', NEW.alert_id, 'state', NEW.state), NEW.last_at
    FROM topics t WHERE t.customer = 0 AND t.name = 'penstock.alerts';
END;
CREATE TRIGGER alert_resolved AFTER UPDATE OF state ON alerts
WHEN OLD.state <> NEW.state AND NEW.state = 'resolved'
BEGIN
    INSERT INTO outbox (topic, payload, created_at)
    SELECT t.name, json_object('alert_id', NEW.alert_id, 'state', NEW.state), NEW.closed_at
    FROM topics t WHERE t.customer = 0 AND t.name = 'penstock.alerts';
END;
