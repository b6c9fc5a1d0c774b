-- migration: quota_retries
-- breaking: no
-- How far a call has come that is retried in place after quota errors, while its run is snoozed.

-- both
-- call: which limit, and the n-th call under it in the run. tries: failed attempts; since_at: when the
-- call began. Rows of other calls of a run end when it is snoozed again, the rest after the run.
CREATE TABLE quota_retries (
    run_id bigint NOT NULL,
    call text NOT NULL,
    customer bigint NOT NULL,
    tries integer NOT NULL,
    since_at bigint NOT NULL,
    PRIMARY KEY (run_id, call)
);

-- only: postgres
CREATE FUNCTION tenant_rules_0066()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'quota_retries', 'SELECT, INSERT, UPDATE, DELETE', 'customer = (SELECT tenant_customer())', NULL
$$;
SELECT tenant_wall();
