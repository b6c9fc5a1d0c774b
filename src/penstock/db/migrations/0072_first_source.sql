-- migration: first_source
-- breaking: no
-- What started the first attempt of a retried run. A function, so that a statement that ends runs
-- reads no partition of history unless a retry has died.

-- only: postgres
CREATE FUNCTION run_first_source(first_run bigint, since_us bigint) RETURNS text
LANGUAGE plpgsql STABLE AS
$$
BEGIN
    RETURN (SELECT h.trigger_source FROM history h
        WHERE h.run_id = first_run AND h.finished_at > since_us LIMIT 1);
END
$$;
