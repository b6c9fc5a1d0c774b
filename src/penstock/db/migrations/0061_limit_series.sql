-- migration: limit_series
-- breaking: no
-- How the capacity of a limit changed, and how many tokens of a rate were granted by minute.

-- both
-- capacity, before: the effective capacity from now on and until now (NULL: no bound). cause: a
-- person set it, a quota error lowered it, or successes raised it.
CREATE TABLE limit_capacities (
    entry {{id}},
    limit_id bigint NOT NULL,
    customer bigint NOT NULL DEFAULT 0,
    capacity integer,
    before integer,
    cause text NOT NULL CHECK (cause IN ('set', 'quota', 'success')),
    at bigint NOT NULL
);
CREATE INDEX limit_capacities_of_limit ON limit_capacities (limit_id, entry);

-- minute: number of the minute of the last grant; taken, taken_before: tokens granted in it and in
-- the minute before it.
ALTER TABLE limits ADD COLUMN minute bigint NOT NULL DEFAULT 0;
ALTER TABLE limits ADD COLUMN taken bigint NOT NULL DEFAULT 0;
ALTER TABLE limits ADD COLUMN taken_before bigint NOT NULL DEFAULT 0;
CREATE INDEX limits_by_name ON limits (name, customer);
CREATE INDEX limits_learned ON limits (limit_id) WHERE learned IS NOT NULL;

-- only: postgres
CREATE FUNCTION tenant_rules_0061()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'limit_capacities', 'SELECT, INSERT, DELETE',
    '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))', NULL
$$;
SELECT tenant_wall();
