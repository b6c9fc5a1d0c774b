-- migration: api
-- breaking: no
-- API keys, the server's own secrets, and (PostgreSQL) the second wall between customers.

-- both
-- Secrets are kept as SHA-256 only. During a rotation the previous one holds until previous_until.
CREATE TABLE api_keys (
    key_id {{id}},
    name text NOT NULL CHECK (name <> ''),
    role text NOT NULL CHECK (role IN ('admin', 'operator', 'worker', 'viewer')),
    customer bigint REFERENCES customers (customer),
    hash text NOT NULL,
    previous_hash text,
    previous_until bigint,
    rate double precision CHECK (rate > 0),
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    revoked_by text,
    last_used_at bigint
) {{fillfactor 70}};

-- What servers share and nobody else may know, such as the key that signs cursors.
CREATE TABLE secrets (
    name text NOT NULL PRIMARY KEY,
    value text NOT NULL,
    created_at bigint NOT NULL
);

-- only: postgres
-- The second wall between customers. Transactions of a caller bound to one customer run as the role
-- penstock_tenant with penstock.customer set; policies then hide and refuse everybody else's rows,
-- and all rows when the setting is missing or empty. Owner and service are not restricted.

-- The customer a transaction is confined to; NULL, which fits no row, when that was not said.
CREATE FUNCTION tenant_customer() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT nullif(current_setting('penstock.customer', true), '')::bigint $$;

-- What a tenant may do with the tables of a migration, and which rows are its own. Condition 'open'
-- means no row-level security (nobody's rows, or only added to); none at all means that no row is
-- there for it. `seen` are rows it may read besides. A migration that adds tables adds a function
-- tenant_rules_NNNN of this shape and calls tenant_wall() again.
CREATE FUNCTION tenant_rules_0002()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, CASE v.whose
    WHEN 'own' THEN 'customer = (SELECT tenant_customer())'
    WHEN 'config' THEN format('EXISTS (SELECT 1 FROM configs f WHERE f.config_id = %I.config_id AND f.customer = (SELECT tenant_customer()))', v.relation)
    ELSE v.whose END, v.seen
FROM (VALUES
    ('customers', 'SELECT, UPDATE (audit_n, audit_head)', 'own', NULL),
    ('configs', 'SELECT, INSERT, UPDATE', 'own', NULL),
    ('runs', 'SELECT, INSERT, UPDATE, DELETE', 'own', NULL),
    ('history', 'SELECT, INSERT', 'own', NULL),
    ('flows', 'SELECT, INSERT, UPDATE', 'own', NULL),
    ('dead_letters', 'SELECT, INSERT, UPDATE', 'own', NULL),
    ('alerts', 'SELECT, INSERT, UPDATE', 'own', NULL),
    ('audit', 'SELECT, INSERT', 'own', NULL),
    ('journal', 'SELECT, INSERT', 'own', NULL),
    ('customer_days', 'SELECT', 'own', NULL),
    ('schedule', 'SELECT, INSERT, UPDATE, DELETE', 'config', NULL),
    ('config_health', 'SELECT, INSERT, UPDATE', 'config', NULL),
    ('ledger', 'SELECT, INSERT', 'config', NULL),
    ('progress', 'SELECT, INSERT, UPDATE, DELETE',
        'EXISTS (SELECT 1 FROM runs r WHERE r.run_id = progress.run_id AND r.customer = (SELECT tenant_customer()))', NULL),
    ('leases', 'SELECT, INSERT, UPDATE, DELETE',
        'kind = ''run'' AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = leases.subject AND r.customer = (SELECT tenant_customer()))', NULL),
    -- Customer 0 is the clock of fairness, which every claim moves.
    ('turns', 'SELECT, INSERT, UPDATE',
        '(SELECT tenant_customer()) IS NOT NULL AND customer IN (0, (SELECT tenant_customer()))', NULL),
    ('requests', 'SELECT, INSERT, UPDATE',
        'starts_with(scope, ''customer:'' || (SELECT tenant_customer()) || '':'')', NULL),
    -- New runs must notice pauses of everybody, or they would start in spite of them.
    ('pauses', 'SELECT, INSERT, DELETE',
        '(scope = ''customer'' AND subject = (SELECT tenant_customer())) OR (scope = ''config'' AND EXISTS (SELECT 1 FROM configs f WHERE f.config_id = pauses.subject AND f.customer = (SELECT tenant_customer())))',
        'scope IN (''all'', ''pipeline'') AND (SELECT tenant_customer()) IS NOT NULL'),
    -- A claim asks for its session; a confined one has none and finds none.
    ('sessions', 'SELECT, UPDATE (session_id)', NULL, NULL),
    ('seals', NULL, NULL, NULL),
    ('api_keys', NULL, NULL, NULL),
    ('secrets', NULL, NULL, NULL),
    ('pools', 'SELECT', 'open', NULL),
    ('pipelines', 'SELECT', 'open', NULL),
    ('processors', 'SELECT', 'open', NULL),
    ('topics', 'SELECT', 'open', NULL),
    ('counters', 'SELECT', 'open', NULL),
    ('cadences', 'SELECT, INSERT', 'open', NULL),
    ('outbox', 'INSERT', 'open', NULL),
    ('run_sums', 'INSERT', 'open', NULL)
) AS v (relation, privileges, whose, seen)
$$;

-- Builds the wall, and says whether it stands. Roles belong to the whole server: another database may
-- have made this one, or be about to; and not every user may. Safe to call again, so that a superuser
-- can make or grant the role later.
CREATE FUNCTION tenant_wall() RETURNS boolean LANGUAGE plpgsql AS
$$
DECLARE
    is_new constant boolean := current_setting('server_version_num')::int >= 160000;
    power constant text := CASE WHEN is_new THEN 'SET' ELSE 'MEMBER' END;
    source regproc;
    rule record;
    old record;
BEGIN
    IF to_regrole('penstock_tenant') IS NULL THEN
        BEGIN
            CREATE ROLE penstock_tenant NOLOGIN NOINHERIT;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL;
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'no second wall between customers: % may not create the role penstock_tenant', current_user;
                RETURN FALSE;
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'penstock_tenant', power) THEN
        BEGIN
            EXECUTE 'GRANT penstock_tenant TO CURRENT_USER' || CASE WHEN is_new THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
        EXCEPTION WHEN insufficient_privilege OR unique_violation OR internal_error THEN
            RAISE NOTICE 'no second wall between customers: % may not become penstock_tenant', current_user;
        END;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO penstock_tenant', current_schema());
    GRANT USAGE ON SEQUENCE token_seq, journal_seq TO penstock_tenant;
    FOR source IN
        SELECT p.oid FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
            AND p.proname ~ '^tenant_rules_\d{4}$' ORDER BY p.proname
    LOOP
        FOR rule IN EXECUTE format('SELECT * FROM %s()', source) LOOP
            IF rule.privileges IS NOT NULL THEN
                EXECUTE format('GRANT %s ON %I TO penstock_tenant', rule.privileges, rule.relation);
            END IF;
            CONTINUE WHEN rule.condition = 'open';
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', rule.relation);
            FOR old IN
                SELECT polname FROM pg_policy WHERE polrelid = rule.relation::regclass
                    AND polname IN ('one_customer', 'seen_by_all')
            LOOP
                EXECUTE format('DROP POLICY %I ON %I', old.polname, rule.relation);
            END LOOP;
            IF rule.condition IS NOT NULL THEN
                EXECUTE format('CREATE POLICY one_customer ON %I TO penstock_tenant USING (%s) WITH CHECK (%s)',
                    rule.relation, rule.condition, rule.condition);
            END IF;
            IF rule.seen IS NOT NULL THEN
                EXECUTE format('CREATE POLICY seen_by_all ON %I FOR SELECT TO penstock_tenant USING (%s)',
                    rule.relation, rule.seen);
            END IF;
        END LOOP;
    END LOOP;
    RETURN pg_has_role(current_user, 'penstock_tenant', power);
END
$$;
SELECT tenant_wall();
