-- migration: shipments
-- breaking: no
-- How far each log was shipped to an audit sink.

-- both
-- position: last shipped block of the journal, or the time up to which rows of another log are shipped.
CREATE TABLE shipments (
    sink text NOT NULL,
    relation text NOT NULL,
    batches bigint NOT NULL,
    position bigint NOT NULL,
    shipped_rows bigint NOT NULL,
    shipped_at bigint NOT NULL,
    error text,
    failed_at bigint,
    PRIMARY KEY (sink, relation)
);

CREATE INDEX audit_by_time ON audit (at);

-- only: postgres
CREATE FUNCTION tenant_rules_0045()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'shipments', '', 'open', CAST(NULL AS text) WHERE FALSE
$$;
SELECT tenant_wall();
