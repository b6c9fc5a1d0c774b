-- Tenant isolation that the database itself enforces.

-- name: tenant_isolation_get [postgres]
-- Whether tenant transactions are possible, and whether this user is itself subject to row-level
-- security.
-- scope: system (reads the catalog)
SELECT EXISTS (SELECT 1 FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
        JOIN pg_roles r ON r.rolname = 'penstock_tenant' AND r.oid = ANY(p.polroles)
        WHERE p.polrelid = 'configs'::regclass AND c.relrowsecurity
            AND NOT r.rolsuper AND NOT r.rolbypassrls AND NOT pg_has_role(r.oid, c.relowner, 'USAGE')
            AND pg_has_role(r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000
                THEN 'SET' ELSE 'MEMBER' END)),
    row_security_active('configs'::regclass);

-- name: tenant_isolation_get [sqlite]
-- differs because SQLite has no roles, so there is no row-level security.
-- scope: system (no rows)
SELECT FALSE, FALSE;
