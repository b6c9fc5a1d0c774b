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
-- penstock_tenant with penstock.customer set; these policies then hide and refuse everybody else's
-- rows, and all rows when the setting is missing or empty. Owner and service are not restricted.
-- Roles belong to the whole server: another database may have made this one, or be about to. Safe to
-- call again, after a superuser made or granted the role; says whether the wall stands.
CREATE FUNCTION tenant_wall() RETURNS boolean LANGUAGE plpgsql AS
$$
DECLARE
    mine constant text := '(SELECT nullif(current_setting(''penstock.customer'', true), '''')::bigint)';
    own constant text := 'customer = ' || mine;
    of_config constant text := 'EXISTS (SELECT 1 FROM configs f WHERE f.config_id = %s AND f.customer = ' || mine || ')';
    of_run constant text := 'EXISTS (SELECT 1 FROM runs r WHERE r.run_id = %s AND r.customer = ' || mine || ')';
    is_new boolean := current_setting('server_version_num')::int >= 160000;
    rule record;
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
    IF NOT pg_has_role(current_user, 'penstock_tenant', CASE WHEN is_new THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            EXECUTE 'GRANT penstock_tenant TO CURRENT_USER' || CASE WHEN is_new THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
        EXCEPTION WHEN insufficient_privilege OR unique_violation OR internal_error THEN
            RAISE NOTICE 'no second wall between customers: % may not become penstock_tenant', current_user;
        END;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO penstock_tenant', current_schema());
    GRANT USAGE ON SEQUENCE token_seq, journal_seq TO penstock_tenant;
    -- What belongs to nobody, and what is only ever added to.
    GRANT SELECT ON pools, pipelines, processors, cadences, topics, counters TO penstock_tenant;
    GRANT INSERT ON cadences, outbox, run_sums TO penstock_tenant;
    -- A claim asks for its session; a confined one has none and finds none.
    GRANT SELECT, UPDATE (session_id) ON sessions TO penstock_tenant;
    FOR rule IN
        SELECT * FROM (VALUES
            ('customers', 'SELECT, UPDATE (audit_n, audit_head)', own),
            ('configs', 'SELECT, INSERT, UPDATE', own),
            ('runs', 'SELECT, INSERT, UPDATE, DELETE', own),
            ('history', 'SELECT, INSERT', own),
            ('flows', 'SELECT, INSERT, UPDATE', own),
            ('dead_letters', 'SELECT, INSERT, UPDATE', own),
            ('alerts', 'SELECT, INSERT, UPDATE', own),
            ('audit', 'SELECT, INSERT', own),
            ('journal', 'SELECT, INSERT', own),
            ('customer_days', 'SELECT', own),
            ('schedule', 'SELECT, INSERT, UPDATE, DELETE', format(of_config, 'schedule.config_id')),
            ('config_health', 'SELECT, INSERT, UPDATE', format(of_config, 'config_health.config_id')),
            ('ledger', 'SELECT, INSERT', format(of_config, 'ledger.config_id')),
            ('progress', 'SELECT, INSERT, UPDATE, DELETE', format(of_run, 'progress.run_id')),
            ('leases', 'SELECT, INSERT, UPDATE, DELETE', 'kind = ''run'' AND ' || format(of_run, 'leases.subject')),
            -- Customer 0 is the clock of fairness, which every claim moves.
            ('turns', 'SELECT, INSERT, UPDATE', mine || ' IS NOT NULL AND customer IN (0, ' || mine || ')'),
            ('requests', 'SELECT, INSERT, UPDATE', 'starts_with(scope, ''customer:'' || ' || mine || ' || '':'')'),
            ('pauses', 'SELECT, INSERT, DELETE', '(scope = ''customer'' AND subject = ' || mine || ') OR (scope = ''config'' AND ' || format(of_config, 'pauses.subject') || ')'),
            ('sessions', NULL, NULL),
            ('seals', NULL, NULL),
            ('api_keys', NULL, NULL),
            ('secrets', NULL, NULL)
        ) AS rules (relation, privileges, condition)
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', rule.relation);
        CONTINUE WHEN rule.condition IS NULL;
        EXECUTE format('GRANT %s ON %I TO penstock_tenant', rule.privileges, rule.relation);
        IF EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = rule.relation::regclass AND polname = 'one_customer') THEN
            EXECUTE format('DROP POLICY one_customer ON %I', rule.relation);
        END IF;
        EXECUTE format('CREATE POLICY one_customer ON %I TO penstock_tenant USING (%s) WITH CHECK (%s)',
            rule.relation, rule.condition, rule.condition);
    END LOOP;
    -- New runs must notice pauses of everybody, or they would start in spite of them.
    IF EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = 'pauses'::regclass AND polname = 'pauses_of_all') THEN
        DROP POLICY pauses_of_all ON pauses;
    END IF;
    EXECUTE 'CREATE POLICY pauses_of_all ON pauses FOR SELECT TO penstock_tenant USING (scope IN (''all'', ''pipeline'') AND ' || mine || ' IS NOT NULL)';
    RETURN pg_has_role(current_user, 'penstock_tenant', CASE WHEN is_new THEN 'SET' ELSE 'MEMBER' END);
END
$$;
SELECT tenant_wall();
