-- Admission: which pending runs may be claimed. Runs that are due, not paused, not blocked and hold
-- their limits have admission 0.

-- fragment: admission_of_due
CASE WHEN {{is_paused}} THEN 2 WHEN g.is_limited OR {{is_capped}} THEN 4 ELSE 0 END

-- name: run_admit_due [postgres]
-- Due runs get their customer's next fair rank and become claimable; those that need limits wait to
-- be queued.
-- scope: system (fairness across customers)
WITH due AS MATERIALIZED (
    SELECT r.run_id, r.customer, r.config_id, p.pipeline, r.scheduled_time, r.pool, r.priority,
        p.limits IS NOT NULL AS is_limited
    FROM runs r JOIN processors p ON p.processor = r.processor
    WHERE r.admission = 1 AND r.scheduled_time <= {{now}}
    ORDER BY r.scheduled_time, r.run_id LIMIT :n FOR UPDATE OF r SKIP LOCKED
), clocks AS MATERIALIZED (
    SELECT g.*, {{fair_clock}} AS clock FROM (SELECT DISTINCT pool, priority FROM due) AS g
), in_line AS MATERIALIZED (
    SELECT g.*, {{clock_read}} AS clock FROM due g
    ORDER BY g.pool, g.priority, g.customer, g.scheduled_time, g.run_id
), locked AS MATERIALIZED (
    SELECT g.*, {{fair_rank_base}} AS base, {{admission_of_due}} AS admission, {{stride}} AS stride
    FROM in_line g
), seated AS MATERIALIZED (
    SELECT l.run_id, l.pool, l.priority, l.customer, l.admission,
        CASE WHEN l.admission <> 0 THEN 0 ELSE
            l.base + l.stride * row_number() OVER (PARTITION BY l.customer, l.pool, l.priority, l.admission
            ORDER BY l.scheduled_time, l.run_id) END AS seat
    FROM locked l
), {{fair_ranks_move}}, admitted AS (
    UPDATE runs r SET admission = k.admission, pass = k.seat,
        level = r.priority, state_at = {{now}}
    FROM seated k WHERE r.run_id = k.run_id
    RETURNING r.run_id, r.customer, r.config_id, r.priority, r.pool, r.admission
), announced AS (
    INSERT INTO outbox (topic, payload, created_at)
    SELECT 'penstock.runs', json_build_object('run_id', i.run_id, 'config_id', i.config_id,
        'customer', i.customer, 'priority', i.priority)::text, {{now}}
    FROM admitted i
    WHERE i.admission = 0 AND EXISTS (SELECT 1 FROM topics WHERE customer = 0 AND name = 'penstock.runs')
)
SELECT pool, count(*) FROM admitted GROUP BY pool;

-- name: run_admit_due [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (fairness across customers)
{{staged_table}};
INSERT INTO temp.staged (source, processor, pool, level, customer, admission)
SELECT g.run_id, NULL, g.pool, g.priority, g.customer, {{admission_of_due}}
FROM (
    SELECT r.run_id, r.customer, r.config_id, p.pipeline, r.scheduled_time, r.pool, r.priority,
        p.limits IS NOT NULL AS is_limited
    FROM runs r JOIN processors p ON p.processor = r.processor
    WHERE r.admission = 1 AND r.scheduled_time <= {{now}}
    ORDER BY r.scheduled_time, r.run_id LIMIT :n) AS g
ORDER BY {{staged_order}}, g.scheduled_time, g.run_id;
{{fair_ranks_from_staged}};
UPDATE runs SET admission = k.admission, level = runs.priority, pass = k.turn, state_at = {{now}}
FROM (SELECT p.source, p.admission, {{fair_rank_of_staged}} AS turn
      FROM temp.staged p LEFT JOIN {{fair_rank_join}}) AS k
WHERE runs.run_id = k.source;
INSERT INTO outbox (topic, payload, created_at)
SELECT 'penstock.runs', json_object('run_id', r.run_id, 'config_id', r.config_id,
    'customer', r.customer, 'priority', r.priority), {{now}}
FROM topics t CROSS JOIN temp.staged k CROSS JOIN runs r ON r.run_id = k.source
WHERE t.customer = 0 AND t.name = 'penstock.runs' AND r.admission = 0;
SELECT pool, count(*) FROM temp.staged GROUP BY pool;

-- name: run_next_due_at
-- When the next waiting run becomes due, for the admission loop's timer.
-- scope: system (a time only)
SELECT min(scheduled_time) FROM runs WHERE admission = 1;

-- name: admission_state
-- Input of the admission loop's timer: when the next run is due, whether runs wait to be queued for
-- limits, whether any run is queued, whether settings of customers were changed, and the current
-- time.
-- scope: system (times only)
SELECT (SELECT min(scheduled_time) FROM runs WHERE admission = 1),
    EXISTS (SELECT 1 FROM runs WHERE admission = 4 AND limits = 0),
    EXISTS (SELECT 1 FROM run_limits WHERE is_waiting),
    EXISTS (SELECT 1 FROM customer_settings
        WHERE rerank_after IS NOT NULL OR capped_at IS NOT NULL), {{now}};

-- name: run_age
-- Raise runs by one level per ten minutes of waiting. At most :per_customer runs of a customer are
-- raised at a time, so that an old backlog cannot overtake all other customers. The run gets the
-- current fair rank of its new level.
-- scope: system (fairness across customers)
UPDATE runs SET level = least(level + 1, 10), pass = coalesce((
    SELECT t.fair_rank FROM fair_ranks t
    WHERE t.pool = runs.pool AND t.level = least(runs.level + 1, 10) AND t.customer = 0
    ORDER BY t.fair_rank DESC LIMIT 1), 0)
WHERE run_id IN (
    SELECT w.run_id FROM (
        SELECT r.run_id, r.level,
            least(10, r.priority + ({{now}} - r.scheduled_time) / 600000000) AS earned,
            row_number() OVER (PARTITION BY r.customer
                ORDER BY r.level DESC, r.pass, r.run_id) AS place
        FROM runs r
        WHERE r.admission = 0 AND r.scheduled_time <= {{now}} - 600000000
    ) AS w WHERE w.place <= :per_customer AND w.level < w.earned)
    AND admission = 0;

-- name: run_pause_covered
-- Pending runs covered by a pause stop being claimable; `queue_pause` releases their limits.
-- scope: system (applies the pauses table)
UPDATE runs SET admission = 2, state_at = {{now}}
WHERE admission IN (0, 1, 4) AND EXISTS (SELECT 1 FROM pauses) AND run_id IN (
    SELECT g.run_id FROM (
        SELECT r.run_id, r.customer, r.config_id, p.pipeline FROM runs r
        JOIN processors p ON p.processor = r.processor WHERE r.admission IN (0, 1, 4)) AS g
    WHERE {{is_paused}});

-- name: run_resume_uncovered
-- Paused runs that are no longer covered by a pause wait for admission again.
-- scope: system (applies the pauses table)
UPDATE runs SET admission = 1, state_at = {{now}}
WHERE admission = 2 AND run_id IN (
    SELECT g.run_id FROM (
        SELECT r.run_id, r.customer, r.config_id, p.pipeline FROM runs r
        JOIN processors p ON p.processor = r.processor WHERE r.admission = 2) AS g
    WHERE NOT {{is_paused}});

-- fragment: key_order
-- The order of row `r` among the runs of its ordering key: a retry has the id of its first attempt.
coalesce(r.root_run_id, r.run_id)

-- fragment: key_is_taken
-- Whether row `r`, admitted and maybe executing, keeps all others of its ordering key waiting. Of
-- blocked and gated runs, only the first may be next.
r.admission NOT IN (3, 5)

-- name: run_unblock_keys
-- Admit the first run of each ordering key if it is blocked and none of that key is admitted. A
-- blocked run is a first attempt, so its order is its id.
-- scope: system (ordering keys are internal)
UPDATE runs SET admission = 1, state_at = {{now}}
WHERE admission = 3 AND run_id IN (
    SELECT min({{key_order}}) FROM runs r
    WHERE r.ordering_key {{any keys}}
    GROUP BY r.ordering_key
    HAVING sum(CASE WHEN {{key_is_taken}} THEN 1 ELSE 0 END) = 0)
RETURNING run_id;

-- name: run_blocked_keys
-- Ordering keys whose first run is blocked although none is admitted (a missed release).
-- scope: system (sweeper)
SELECT r.ordering_key FROM runs r WHERE r.ordering_key IS NOT NULL
GROUP BY r.ordering_key
HAVING sum(CASE WHEN {{key_is_taken}} THEN 1 ELSE 0 END) = 0
    AND min(CASE WHEN r.admission = 3 THEN r.run_id END) = min({{key_order}})
LIMIT :n;

-- name: pause_put
-- Pause a config, a customer, a pipeline or everything. A pause by a budget is taken over.
-- scope: system (the caller has resolved and checked the subject)
DELETE FROM pauses WHERE scope = :scope AND subject = :subject AND paused_by = :budget;
INSERT INTO pauses (scope, subject, paused_at, paused_by, reason)
VALUES (:scope, :subject, {{now}}, :actor, :reason)
ON CONFLICT (scope, subject) DO NOTHING RETURNING scope;

-- name: pause_drop
-- Delete a pause, of anybody or only of one; return who paused.
-- scope: system (the caller has resolved and checked the subject)
DELETE FROM pauses WHERE scope = :scope AND subject = :subject
    AND (CAST(:only AS text) IS NULL OR paused_by = :only) RETURNING paused_by;

-- name: pause_list
-- All pauses in force.
-- scope: system (operators)
SELECT q.scope, q.subject, q.paused_at, q.paused_by, q.reason, c.customer_id, p.name
FROM pauses q
LEFT JOIN customers c ON q.scope = 'customer' AND c.customer = q.subject
LEFT JOIN pipelines p ON q.scope = 'pipeline' AND p.pipeline = q.subject
ORDER BY q.scope, q.subject LIMIT 1000;
