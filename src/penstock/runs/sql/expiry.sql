-- Expiry of runs that wait too long: taken from the queue like cancelled ones, then ended.

-- name: run_expired
-- Runs that were not started in time, locked. One that another transaction claims or cancels is
-- skipped: it has started, or ends otherwise.
-- scope: system (sweeper)
SELECT run_id FROM runs
WHERE expires_us IS NOT NULL AND admission < 6 AND scheduled_time + expires_us <= {{now}}
ORDER BY scheduled_time + expires_us LIMIT :n {{pg:FOR UPDATE SKIP LOCKED}};

-- name: run_expire_many [postgres]
-- Remove pending runs from the queue: CLAIMED without a holder, so that finish can end them.
-- scope: system (the caller has locked the runs)
WITH r AS (
    UPDATE runs SET state = 'CLAIMED', admission = 9, claimed_by = NULL, session_id = NULL,
        token = nextval('token_seq'), state_at = {{now}}
    WHERE run_id = ANY(:ids) AND state = 'PENDING' RETURNING runs.*
)
SELECT {{held_columns}}, r.expires_us FROM r {{held_joins}} ORDER BY r.run_id;

-- name: run_expire_many [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (the caller has locked the runs)
UPDATE runs SET state = 'CLAIMED', admission = 9, claimed_by = NULL, session_id = NULL,
    token = (SELECT value FROM counters WHERE name = 'token') + k.place, state_at = {{now}}
FROM (SELECT value AS run_id, row_number() OVER (ORDER BY value) AS place FROM json_each(:ids)) AS k
WHERE runs.run_id = k.run_id AND runs.state = 'PENDING';
UPDATE counters SET value = value + (SELECT count(*) FROM json_each(:ids)) WHERE name = 'token';
SELECT {{held_columns}}, r.expires_us FROM runs r {{held_joins}}
WHERE r.run_id {{any ids}} AND r.admission = 9 AND r.claimed_at IS NULL ORDER BY r.run_id;
