-- Sessions of people in the dashboard.

-- name: login_put
-- Open a session; sessions that have ended are deleted, at most 100.
-- scope: system (a session is looked up before its customer is known)
DELETE FROM logins WHERE token_hash IN
    (SELECT token_hash FROM logins WHERE expires_at <= {{now}} ORDER BY expires_at LIMIT 100);
INSERT INTO logins (token_hash, key_id, secret_hash, person, role, customer_id, address, agent,
    created_at, seen_at, expires_at)
VALUES (:token_hash, :key_id, :secret_hash, :person, :role, :customer_id, :address, :agent,
    {{now}}, {{now}}, {{now}} + :lifetime_us)
RETURNING expires_at;

-- fragment: login_columns
token_hash, key_id, secret_hash, person, role, customer_id, address, agent, created_at, seen_at,
    expires_at

-- name: login_get
-- A session that has not ended.
-- scope: system (as above)
SELECT {{login_columns}} FROM logins WHERE token_hash = :token_hash AND expires_at > {{now}};

-- name: login_list
-- The sessions of a key or a person that have not ended, newest first.
-- scope: system (as above)
SELECT {{login_columns}} FROM logins
WHERE key_id = :key_id AND coalesce(person, '') = coalesce(CAST(:person AS text), '')
    AND expires_at > {{now}}
ORDER BY created_at DESC, token_hash LIMIT :limit;

-- name: login_touch
-- Record that a session was used.
-- scope: system (as above)
UPDATE logins SET seen_at = {{now}} WHERE token_hash = :token_hash;

-- name: login_delete
-- End a session.
-- scope: system (as above)
DELETE FROM logins WHERE token_hash = :token_hash RETURNING key_id;
