-- Expansions and items: which runs a processor has in a flow, and how many of them have ended.

-- fragment: expansion_columns
-- In the order of `fan_in.ExpansionRow`.
e.flow_id, e.processor, e.customer, e.phase, e.name, e.state, e.source, e.is_entry, e.started_at,
e.sealed_at, e.total, e.created, e.succeeded, e.partial, e.failed, e.records, e.due_at, e.token,
e.tries, e.error

-- name: expansion_insert_many
-- Record the expansions of new triggers, once per flow and processor. Returns the new ones.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, processor bigint, customer bigint, phase text, name text, state text,
--   source text, is_entry boolean, total bigint, created bigint, is_due boolean, error text
INSERT INTO expansions (flow_id, processor, customer, phase, name, state, source, is_entry,
    started_at, sealed_at, total, created, due_at, error)
SELECT batch.flow_id, batch.processor, batch.customer, batch.phase, batch.name, batch.state,
    batch.source, batch.is_entry, {{now}}, CASE WHEN batch.state = 'SEALED' THEN {{now}} END,
    batch.total, batch.created, CASE WHEN batch.is_due THEN {{now}} END, batch.error
FROM {{batch}} WHERE TRUE ORDER BY 1, 2
ON CONFLICT (flow_id, processor) DO NOTHING
RETURNING flow_id, processor;

-- name: expansion_items_put_many
-- Store the items whose runs are created later.
-- scope: system (the batch names its customers)
-- batch: flow_id bigint, processor bigint, position bigint, customer bigint, items text
INSERT INTO expansion_items (flow_id, processor, position, customer, items)
SELECT batch.flow_id, batch.processor, batch.position, batch.customer, batch.items
FROM {{batch}} ORDER BY ord;

-- name: expansion_fold [postgres]
-- Add the counts of ended items to the expansions of flows. Returns the expansions.
-- scope: system (the caller locked the flows)
WITH taken AS MATERIALIZED (
    DELETE FROM item_counts WHERE flow_id {{any ids}}
    RETURNING flow_id, processor, succeeded, partial, failed, records
)
UPDATE expansions e SET succeeded = e.succeeded + t.succeeded, partial = e.partial + t.partial,
    failed = e.failed + t.failed, records = e.records + t.records
FROM (SELECT flow_id, processor, sum(succeeded) AS succeeded, sum(partial) AS partial,
          sum(failed) AS failed, sum(records) AS records FROM taken
      GROUP BY flow_id, processor) AS t
WHERE e.flow_id = t.flow_id AND e.processor = t.processor AND e.flow_id {{any ids}};
SELECT {{expansion_columns}} FROM expansions e WHERE e.flow_id {{any ids}}
ORDER BY e.flow_id, e.processor;

-- name: expansion_fold [sqlite]
-- differs because SQLite has no data-modifying CTEs; it has one writer, so no row is missed.
-- scope: system (the caller locked the flows)
UPDATE expansions SET succeeded = expansions.succeeded + t.succeeded,
    partial = expansions.partial + t.partial, failed = expansions.failed + t.failed,
    records = expansions.records + t.records
FROM (SELECT flow_id, processor, sum(succeeded) AS succeeded, sum(partial) AS partial,
          sum(failed) AS failed, sum(records) AS records FROM item_counts
      WHERE flow_id {{any ids}} GROUP BY flow_id, processor) AS t
WHERE expansions.flow_id = t.flow_id AND expansions.processor = t.processor;
DELETE FROM item_counts WHERE flow_id {{any ids}};
SELECT {{expansion_columns}} FROM expansions e WHERE e.flow_id {{any ids}}
ORDER BY e.flow_id, e.processor;

-- name: expansion_rows_for_flows
-- The expansions of flows, with the counts that were not added yet.
-- scope: system (the caller may see the flows)
SELECT e.flow_id, e.processor, e.customer, e.phase, e.name, e.state, e.source, e.is_entry,
    e.started_at, e.sealed_at, e.total, e.created,
    CAST(e.succeeded + coalesce((SELECT sum(n.succeeded) FROM item_counts n
        WHERE n.flow_id = e.flow_id AND n.processor = e.processor), 0) AS bigint),
    CAST(e.partial + coalesce((SELECT sum(n.partial) FROM item_counts n
        WHERE n.flow_id = e.flow_id AND n.processor = e.processor), 0) AS bigint),
    CAST(e.failed + coalesce((SELECT sum(n.failed) FROM item_counts n
        WHERE n.flow_id = e.flow_id AND n.processor = e.processor), 0) AS bigint),
    CAST(e.records + coalesce((SELECT sum(n.records) FROM item_counts n
        WHERE n.flow_id = e.flow_id AND n.processor = e.processor), 0) AS bigint),
    e.due_at, e.token, e.tries, e.error
FROM expansions e WHERE e.flow_id {{any ids}} ORDER BY e.flow_id, e.processor;

-- name: expansion_due
-- Expansions that the orchestrator continues now, the longest waiting first.
-- scope: system (the cascade serves all customers)
SELECT {{expansion_columns}} FROM expansions e
WHERE e.due_at IS NOT NULL AND e.due_at <= {{now}} ORDER BY e.due_at, e.flow_id LIMIT :n;

-- name: expansion_flow_lock
-- Lock flows to continue their expansions; those that another transaction holds are skipped.
-- scope: system (the cascade serves all customers)
SELECT {{flow_columns}} FROM flows w {{flow_joins}}
WHERE w.flow_id {{any ids}} ORDER BY w.flow_id {{pg:FOR NO KEY UPDATE OF w SKIP LOCKED}};

-- name: expansion_items_take
-- Delete and return the next stored items of expansions.
-- scope: system (the caller locked the flows)
-- batch: flow_id bigint, processor bigint
DELETE FROM expansion_items WHERE (flow_id, processor, position) IN (
    SELECT x.flow_id, x.processor, (SELECT min(i.position) FROM expansion_items i
        WHERE i.flow_id = x.flow_id AND i.processor = x.processor)
    FROM (SELECT batch.flow_id, batch.processor FROM {{batch}}) AS x)
RETURNING flow_id, processor, items;

-- name: expansion_advance_many
-- Count runs that were created; an expansion goes to the end of the queue until it has all.
-- scope: system (the caller locked the flows)
-- batch: flow_id bigint, processor bigint, created bigint
UPDATE expansions SET created = expansions.created + batch.created,
    due_at = CASE WHEN expansions.created + batch.created < expansions.total THEN {{now}} END
FROM {{batch}} WHERE expansions.flow_id = batch.flow_id
    AND expansions.processor = batch.processor {{pg:AND expansions.flow_id = ANY(:b_flow_id::bigint[])}};

-- name: expansion_lease
-- Lease an evaluation, so that no other process evaluates the same items meanwhile.
-- scope: system (the cascade serves all customers)
UPDATE expansions SET token = token + 1, due_at = {{now}} + :lease_us
WHERE flow_id = :flow_id AND processor = :processor AND state = 'EVALUATING' AND token = :token
    AND due_at IS NOT NULL
RETURNING token;

-- name: expansion_seal
-- Store the outcome of an evaluation whose lease is current.
-- scope: system (the caller locked the flow)
UPDATE expansions SET state = :state, total = :total, created = :created, error = :error,
    sealed_at = CASE WHEN :state = 'SEALED' THEN {{now}} END,
    due_at = CASE WHEN :is_due THEN {{now}} END
WHERE flow_id = :flow_id AND processor = :processor AND state = 'EVALUATING' AND token = :token
RETURNING flow_id;

-- name: expansion_postpone
-- Evaluate again later, after an error.
-- scope: system (the cascade serves all customers)
UPDATE expansions SET due_at = {{now}} + :delay_us, tries = tries + :tries, error = :error
WHERE flow_id = :flow_id AND processor = :processor AND state = 'EVALUATING' AND token = :token;

-- name: expansion_cancel
-- Create no more runs of items in flows that were cancelled or failed at their deadline.
-- scope: system (the caller locked the flows)
DELETE FROM expansion_items WHERE flow_id {{any ids}};
UPDATE expansions SET state = 'CANCELLED', due_at = NULL
WHERE flow_id {{any ids}} AND (state = 'EVALUATING' OR created < total);

-- name: item_sources
-- The results of runs that ended in a span of time.
-- scope: system (the caller locked the flows)
SELECT run_id, result FROM history WHERE run_id {{any ids}} AND finished_at >= :since
    AND finished_at <= :until;

-- fragment: item_rank
CASE g.status WHEN 'success' THEN 2 WHEN 'partial' THEN 1 ELSE 0 END

-- fragment: item_known
-- The rank of the item's previous completion; -1 if there is none. A scalar subquery, so that it is
-- found by key whatever the size of the table was when the statement was planned.
coalesce((SELECT CASE o.status WHEN 'success' THEN 2 WHEN 'partial' THEN 1 ELSE 0 END
    FROM item_completions o WHERE o.flow_id = g.flow_id AND o.processor = g.processor
        AND o.item_key = g.item_key), -1)

-- name: item_put_many
-- Record items that ended, count them, and append a flow event per flow and phase. An item has one
-- live run at a time, so the previous completion is the one that counts.
-- scope: system (the caller ended the runs)
-- batch: flow_id bigint, processor bigint, item_key text, customer bigint, status text,
--   run_id bigint, records bigint, error_type text
INSERT INTO item_counts (flow_id, processor, customer, succeeded, partial, failed, records)
SELECT k.flow_id, k.processor, k.customer, sum(CASE WHEN k.rank = 2 THEN 1 ELSE 0 END),
    sum(CASE WHEN k.rank = 1 THEN 1 ELSE 0 END) - sum(CASE WHEN k.known = 1 THEN 1 ELSE 0 END),
    sum(CASE WHEN k.rank = 0 THEN 1 ELSE 0 END) - sum(CASE WHEN k.known = 0 THEN 1 ELSE 0 END),
    coalesce(sum(k.records), 0)
FROM (SELECT g.flow_id, g.processor, g.customer, g.records, {{item_rank}} AS rank,
          {{item_known}} AS known
      FROM (SELECT * FROM {{batch}}) AS g) AS k
WHERE k.rank > k.known GROUP BY k.flow_id, k.processor, k.customer;
INSERT INTO nudges (flow_id, customer, phase, is_failure, at)
SELECT DISTINCT g.flow_id, g.customer, p.phase, FALSE, {{now}}
FROM (SELECT * FROM {{batch}}) AS g JOIN processors p ON p.processor = g.processor;
INSERT INTO item_completions (flow_id, processor, item_key, customer, status, at, run_id, records,
    error_type)
SELECT g.flow_id, g.processor, g.item_key, g.customer, g.status, {{now}}, g.run_id, g.records,
    g.error_type
FROM (SELECT * FROM {{batch}}) AS g WHERE TRUE ORDER BY g.flow_id, g.processor, g.item_key
ON CONFLICT (flow_id, processor, item_key) DO UPDATE SET status = excluded.status,
    at = excluded.at, run_id = excluded.run_id, records = excluded.records,
    error_type = excluded.error_type
WHERE CASE excluded.status WHEN 'success' THEN 2 WHEN 'partial' THEN 1 ELSE 0 END
    >= CASE item_completions.status WHEN 'success' THEN 2 WHEN 'partial' THEN 1 ELSE 0 END;

-- fragment: item_scope
-- Items of a flow, of one processor or all, after a position.
k.flow_id = :flow_id AND (CAST(:processor AS bigint) IS NULL OR k.processor = :processor)
    AND (k.processor > :after_processor
        OR (k.processor = :after_processor AND k.item_key > :after_key))

-- name: item_list
-- Items that ended, and live ones, by processor and key; an item that is retried is in both.
-- scope: system (the caller may see the flow)
SELECT u.processor, p.phase, p.name, u.item_key, u.state, u.run_id, u.since, u.error_type, u.records
FROM (
    SELECT * FROM (
        SELECT k.processor, k.item_key, CASE k.status WHEN 'success' THEN 'succeeded'
                ELSE k.status END AS state, k.run_id, k.at AS since, k.error_type, k.records,
            1 AS rank
        FROM item_completions k WHERE {{item_scope}}
            AND (CAST(:status AS text) IS NULL OR k.status = :status)
        ORDER BY k.processor, k.item_key LIMIT :limit) AS ended
    UNION ALL
    SELECT * FROM (
        SELECT k.processor, k.item_key, CASE k.state WHEN 'PENDING' THEN 'waiting'
                ELSE 'running' END AS state, k.run_id, k.state_at AS since,
            CAST(NULL AS text) AS error_type, CAST(NULL AS bigint) AS records, 0 AS rank
        FROM runs k WHERE {{item_scope}} AND k.item_key <> ''
            AND (CAST(:live AS text) IS NULL OR :live = 'any'
                OR (:live = 'waiting') = (k.state = 'PENDING')) AND :live IS NOT NULL
        ORDER BY k.processor, k.item_key LIMIT :limit) AS live
) AS u JOIN processors p ON p.processor = u.processor
ORDER BY u.processor, u.item_key, u.rank;

-- name: item_errors
-- The most frequent kinds of errors of failed items.
-- scope: system (the caller may see the flow)
SELECT coalesce(k.error_type, 'CANCELLED'), count(*) FROM item_completions k
WHERE k.flow_id = :flow_id AND k.processor = :processor AND k.status = 'failed'
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :limit;

-- name: item_retryable
-- The last runs of ended items: those named, or the failed ones that match, without a live run.
-- scope: system (the caller has checked the flow)
SELECT k.item_key, k.run_id FROM item_completions k
WHERE k.flow_id = :flow_id AND k.processor = :processor
    AND (k.item_key {{any keys}} OR (:is_filter AND k.status = 'failed'
        AND (CAST(:pattern AS text) IS NULL OR k.item_key LIKE :pattern ESCAPE '\')
        AND (CAST(:error_type AS text) IS NULL OR coalesce(k.error_type, 'CANCELLED') = :error_type)))
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.flow_id = k.flow_id AND r.processor = k.processor
        AND r.item_key = k.item_key)
ORDER BY k.item_key LIMIT :limit;
