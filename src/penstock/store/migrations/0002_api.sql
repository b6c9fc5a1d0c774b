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
