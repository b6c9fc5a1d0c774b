-- migration: logins
-- breaking: no
-- Sessions of people in the dashboard: each belongs to an API key and ends with it.

-- both
-- token_hash: SHA-256 of the cookie's token; secret_hash: hash of the key's secret at login, so that
-- a session ends when that secret does.
CREATE TABLE logins (
    token_hash text PRIMARY KEY,
    key_id bigint NOT NULL,
    secret_hash text NOT NULL,
    created_at bigint NOT NULL,
    seen_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX logins_by_end ON logins (expires_at);

-- only: postgres
CREATE FUNCTION tenant_rules_0034()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, NULL, NULL, NULL FROM (VALUES ('logins')) AS v (relation)
$$;
SELECT tenant_wall();
