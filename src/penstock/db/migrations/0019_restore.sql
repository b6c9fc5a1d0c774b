-- migration: restore
-- breaking: no
-- Journal and seals that survive a restore into another cluster.

-- both
-- Transaction ids order the journal, and they start again in every PostgreSQL cluster. An entry
-- names the cluster that wrote it, counted from 0; a restore into another cluster begins the next.
ALTER TABLE journal ADD COLUMN cluster integer NOT NULL DEFAULT 0;
ALTER TABLE seals ADD COLUMN cluster integer NOT NULL DEFAULT 0;

-- only: postgres
CREATE TABLE clusters (
    cluster integer PRIMARY KEY,
    system_id text,
    entered_at bigint NOT NULL
);

-- The identifier that initdb gives a cluster; NULL if this user may not read it.
CREATE FUNCTION system_id() RETURNS text LANGUAGE plpgsql STABLE AS
$$
BEGIN
    RETURN (SELECT system_identifier::text FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END
$$;

-- Whether the rows of this database were written in another cluster: it has another identifier, or,
-- if that is unknown, the journal has transaction ids that this cluster has not reached.
CREATE FUNCTION is_restored() RETURNS boolean LANGUAGE plpgsql STABLE AS
$$
DECLARE
    last record;
    mine constant text := system_id();
BEGIN
    SELECT * INTO last FROM clusters ORDER BY cluster DESC LIMIT 1;
    IF mine IS NOT NULL AND last.system_id IS NOT NULL THEN
        RETURN mine <> last.system_id;
    END IF;
    RETURN EXISTS (SELECT 1 FROM journal j WHERE j.cluster = last.cluster
        AND j.xid >= pg_snapshot_xmax(pg_current_snapshot()));
END
$$;

-- Begins a cluster after a restore. Roles are not part of a dump, so the tenant role, its rights and
-- its policies are created again. Fencing tokens skip those that were handed out after the dump:
-- sinks have stored them and refuse lower ones.
CREATE FUNCTION enter_cluster() RETURNS boolean LANGUAGE plpgsql AS
$$
DECLARE
    following integer;
BEGIN
    IF NOT is_restored() THEN
        RETURN FALSE;
    END IF;
    INSERT INTO clusters (cluster, system_id, entered_at)
    SELECT max(cluster) + 1, system_id(), db_now() FROM clusters RETURNING cluster INTO following;
    EXECUTE format('ALTER TABLE journal ALTER COLUMN cluster SET DEFAULT %s', following);
    PERFORM setval('token_seq', nextval('token_seq') + 1000000000);
    PERFORM tenant_wall();
    RETURN TRUE;
END
$$;

INSERT INTO clusters (cluster, system_id, entered_at) VALUES (0, system_id(), db_now());

CREATE FUNCTION tenant_rules_0019()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$ SELECT 'clusters', NULL, NULL, NULL $$;
SELECT tenant_wall();
