-- API keys and the server's own secrets.

-- fragment: key_columns
-- In the order of keys.KeyRow.
k.key_id, k.name, k.role, k.customer, c.customer_id, k.hash, k.previous_hash, k.previous_until,
k.rate, k.created_at, k.created_by, k.expires_at, k.revoked_at, k.revoked_by, k.last_used_at

-- fragment: key_joins
FROM api_keys k LEFT JOIN customers c ON c.customer = k.customer

-- name: key_put
-- Create a key.
-- scope: system (keys belong to the installation)
INSERT INTO api_keys (name, role, customer, hash, rate, created_at, created_by, expires_at)
VALUES (:name, :role, :customer, :hash, :rate, {{now}}, :created_by, :expires_at)
RETURNING key_id;

-- name: key_get
-- One key by its id.
-- scope: system (a key is looked up before its customer is known)
SELECT {{key_columns}} {{key_joins}} WHERE k.key_id = :key_id;

-- name: key_list
-- Keys in id order.
-- scope: system (keys belong to the installation)
SELECT {{key_columns}} {{key_joins}}
WHERE k.key_id > :after AND (CAST(:customer AS bigint) IS NULL OR k.customer = :customer)
    AND (:with_revoked OR k.revoked_at IS NULL)
ORDER BY k.key_id LIMIT :limit;

-- name: key_rotate
-- Replace a key's secret; the old one stays valid for a while. Revoked keys are not changed.
-- scope: system (keys belong to the installation)
UPDATE api_keys SET previous_hash = hash, previous_until = {{now}} + :overlap_us, hash = :hash
WHERE key_id = :key_id AND revoked_at IS NULL RETURNING previous_until;

-- name: key_revoke
-- Revoke a key permanently.
-- scope: system (keys belong to the installation)
UPDATE api_keys SET revoked_at = {{now}}, revoked_by = :actor
WHERE key_id = :key_id AND revoked_at IS NULL RETURNING revoked_at;

-- name: key_touch
-- Record that a key was used, at most once a minute.
-- scope: system (keys belong to the installation)
UPDATE api_keys SET last_used_at = {{now}}
WHERE key_id = :key_id AND (last_used_at IS NULL OR last_used_at < {{now}} - 60000000)
RETURNING key_id;

-- name: secret_ensure
-- Return a secret of the installation; the first caller's value is kept.
-- scope: system (secrets belong to the installation)
INSERT INTO secrets (name, value, created_at) VALUES (:name, :value, {{now}})
ON CONFLICT (name) DO NOTHING;
SELECT value FROM secrets WHERE name = :name;

-- name: secret_get
-- A secret of the installation.
-- scope: system (secrets belong to the installation)
SELECT value FROM secrets WHERE name = :name;

-- name: secret_swap
-- Replace a secret, unless it changed in the meantime.
-- scope: system (secrets belong to the installation)
UPDATE secrets SET value = :value WHERE name = :name AND value = :before RETURNING name;
