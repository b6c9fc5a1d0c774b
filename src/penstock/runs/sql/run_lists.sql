-- Lists of runs: live runs, and ended ones by an index that bounds how many rows are visited.

-- fragment: of_processor
(CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
    AND (CAST(:processor AS text) IS NULL OR :processor IN (p.name, p.phase || '.' || p.name))

-- fragment: live_filters
    AND r.admission BETWEEN :waits_from AND :waits_to
    AND (CAST(:flow_id AS bigint) IS NULL OR r.flow_id = :flow_id)
    AND (CAST(:config_id AS bigint) IS NULL OR r.config_id = :config_id)
    AND {{of_processor}}
    AND (CAST(:state AS text) IS NULL OR r.state = :state)
    AND (CAST(:partition AS text) IS NULL OR r.partition = :partition)
    AND (CAST(:correlation_id AS text) IS NULL OR r.correlation_id = :correlation_id)
    AND (CAST(:message_id AS text) IS NULL OR r.trigger_message_id = :message_id)
    AND (CAST(:prefix AS text) IS NULL OR r.run_id {{any ids}}
        OR (r.correlation_id {{pg:COLLATE "C"}} >= :prefix
            AND r.correlation_id {{pg:COLLATE "C"}} < :prefix_end)
        OR (r.partition {{pg:COLLATE "C"}} >= :prefix
            AND r.partition {{pg:COLLATE "C"}} < :prefix_end))
    AND r.slot >= :occurrence_from AND r.slot < :occurrence_to
    AND (CAST(:sla_met AS boolean) IS NULL OR {{live_sla_met}} = :sla_met)

-- fragment: ended_filters
-- The `+ 0` keeps the planner from choosing an index of times instead of a better one.
    AND (CAST(:config_id AS bigint) IS NULL OR h.config_id = :config_id)
    AND {{of_processor}}
    AND (CAST(:state AS text) IS NULL OR h.final_state = :state)
    AND (CAST(:partition AS text) IS NULL OR h.partition = :partition)
    AND (CAST(:message_id AS text) IS NULL OR h.trigger_message_id = :message_id)
    AND (CAST(:error_type AS text) IS NULL OR h.error_type = :error_type)
    AND h.slot + 0 >= :occurrence_from AND h.slot + 0 < :occurrence_to
    AND (CAST(:sla_met AS boolean) IS NULL OR h.sla_met = :sla_met)
    AND (CAST(:flow_id AS bigint) IS NULL OR h.flow_id = :flow_id)
    AND (CAST(:is_dead AS boolean) IS NULL OR h.is_dead = :is_dead)
    AND h.finished_at + 0 >= :ended_from AND h.finished_at + 0 < :ended_to

-- fragment: of_customer
AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)

-- name: run_list_live
-- Live runs of all customers, newest first, from the next window of rows.
-- scope: system (operators)
SELECT {{live_columns}} FROM (
    SELECT v.* FROM runs v WHERE v.run_id < :before ORDER BY v.run_id DESC LIMIT :visited) AS r
{{live_names}}
WHERE TRUE {{live_filters}}
ORDER BY r.run_id DESC LIMIT :limit;

-- name: run_window_live
-- Where the next window of live runs ends; no row if it is not full.
-- scope: system (operators)
SELECT 0, w.run_id FROM (
    SELECT e.run_id, count(*) OVER () AS visited FROM (
        SELECT v.run_id FROM runs v WHERE v.run_id < :before
        ORDER BY v.run_id DESC LIMIT :visited) AS e) AS w
WHERE w.visited = :visited ORDER BY w.run_id LIMIT 1;

-- name: run_list_live_customer
-- Live runs of one customer, newest first, from its next window of rows.
SELECT {{live_columns}} FROM (
    SELECT v.* FROM runs v WHERE v.customer = :customer AND v.run_id < :before
    ORDER BY v.run_id DESC LIMIT :visited) AS r
{{live_names}}
WHERE TRUE {{live_filters}}
ORDER BY r.run_id DESC LIMIT :limit;

-- name: run_window_live_customer
-- Where the next window of a customer's live runs ends; no row if it is not full.
SELECT 0, w.run_id FROM (
    SELECT e.run_id, count(*) OVER () AS visited FROM (
        SELECT v.run_id FROM runs v WHERE v.customer = :customer AND v.run_id < :before
        ORDER BY v.run_id DESC LIMIT :visited) AS e) AS w
WHERE w.visited = :visited ORDER BY w.run_id LIMIT 1;

-- fragment: few_live
-- The sums keep the planner from reading all live runs in the order of their ids.
{{of_customer}} AND r.run_id + 0 < :before
ORDER BY r.run_id + 0 DESC LIMIT :limit

-- name: run_list_live_held
-- Claimed and running runs, newest first; they have their own index.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{live_columns}} {{live_joins}} WHERE r.admission = 9 {{live_filters}} {{few_live}};

-- name: run_list_live_config
-- Live runs of a config, newest first; the unique index of occurrences has them.
SELECT {{live_columns}} {{live_joins}}
WHERE r.customer = :customer AND r.config_id = :config_id {{live_filters}} {{few_live}};

-- name: run_list_live_flow
-- Live runs of a flow, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{live_columns}} {{live_joins}} WHERE r.flow_id = :flow_id {{live_filters}} {{few_live}};

-- name: run_list_live_message
-- Live runs that a message triggered, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{live_columns}} {{live_joins}}
WHERE r.trigger_message_id = :message_id {{live_filters}} {{few_live}};

-- name: run_list_live_correlation
-- Live runs with a correlation id, newest first; those of flows are found by their flows.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{live_columns}} {{live_joins}}
WHERE r.run_id IN (
    SELECT x.run_id FROM runs x WHERE x.correlation_id = :correlation_id AND x.flow_id IS NULL
    UNION ALL SELECT y.run_id FROM flows w JOIN runs y ON y.flow_id = w.flow_id
    WHERE w.correlation_id = :correlation_id) {{live_filters}} {{few_live}};

-- name: run_list_running
-- Running runs, longest-running first; held runs have their own index.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{live_columns}} {{live_joins}}
WHERE r.admission = 9 AND r.state = 'RUNNING' {{of_customer}}
    AND (r.started_at, r.run_id) > (:started_after, :after) {{live_filters}}
ORDER BY r.started_at, r.run_id LIMIT :limit;

-- fragment: is_waiting
r.admission < 9 AND (r.admission <> 1 OR r.scheduled_time <= {{now}})

-- name: run_list_waiting
-- Pending runs of all customers that are due, oldest first, from the next window of rows.
-- scope: system (operators)
SELECT {{live_columns}} FROM (
    SELECT v.* FROM runs v WHERE v.run_id > :after ORDER BY v.run_id LIMIT :visited) AS r
{{live_names}}
WHERE {{is_waiting}} {{live_filters}}
ORDER BY r.run_id LIMIT :limit;

-- name: run_window_waiting
-- Where the next window of the oldest live runs ends; no row if it is not full.
-- scope: system (operators)
SELECT 0, w.run_id FROM (
    SELECT e.run_id, count(*) OVER () AS visited FROM (
        SELECT v.run_id FROM runs v WHERE v.run_id > :after
        ORDER BY v.run_id LIMIT :visited) AS e) AS w
WHERE w.visited = :visited ORDER BY w.run_id DESC LIMIT 1;

-- name: run_list_waiting_customer
-- Pending runs of a customer that are due, oldest first, from its next window of rows.
SELECT {{live_columns}} FROM (
    SELECT v.* FROM runs v WHERE v.customer = :customer AND v.run_id > :after
    ORDER BY v.run_id LIMIT :visited) AS r
{{live_names}}
WHERE {{is_waiting}} {{live_filters}}
ORDER BY r.run_id LIMIT :limit;

-- name: run_window_waiting_customer
-- Where the next window of a customer's oldest live runs ends; no row if it is not full.
SELECT 0, w.run_id FROM (
    SELECT e.run_id, count(*) OVER () AS visited FROM (
        SELECT v.run_id FROM runs v WHERE v.customer = :customer AND v.run_id > :after
        ORDER BY v.run_id LIMIT :visited) AS e) AS w
WHERE w.visited = :visited ORDER BY w.run_id DESC LIMIT 1;

-- name: run_list_ended
-- Ended runs of all customers, newest first.
-- scope: system (operators)
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.run_id < :before ORDER BY h.run_id DESC LIMIT :limit;

-- fragment: customer_window
-- The next rows of a customer by scheduled time, before other filters.
SELECT v.* FROM history v
WHERE v.customer = :customer AND (v.slot, v.run_id) < (:occurrence_before, :before)
    AND v.slot >= :occurrence_from AND v.slot < :occurrence_to
ORDER BY v.slot DESC, v.run_id DESC LIMIT :visited

-- name: run_list_ended_customer
-- Ended runs of one customer by scheduled time, newest first, from its next window of rows.
SELECT {{ended_columns}} FROM ({{customer_window}}) AS h {{ended_names}}
WHERE TRUE {{ended_filters}}
ORDER BY h.slot DESC, h.run_id DESC LIMIT :limit OFFSET :offset;

-- name: run_window_customer
-- Where the next window of a customer's ended runs ends; no row if it is not full.
SELECT w.slot, w.run_id FROM (
    SELECT e.slot, e.run_id, count(*) OVER () AS visited FROM (
        SELECT v.slot, v.run_id FROM history v
        WHERE v.customer = :customer AND (v.slot, v.run_id) < (:occurrence_before, :before)
            AND v.slot >= :occurrence_from AND v.slot < :occurrence_to
        ORDER BY v.slot DESC, v.run_id DESC LIMIT :visited) AS e) AS w
WHERE w.visited = :visited ORDER BY w.slot, w.run_id LIMIT 1;

-- fragment: customer_ends
-- The next rows of a customer by the time of their end, before other filters.
FROM history v
WHERE v.customer = :customer AND (v.finished_at, v.run_id) < (:ended_before, :before)
    AND v.finished_at <= :ended_before AND v.finished_at >= :ended_from
    AND v.finished_at < :ended_to
ORDER BY v.finished_at DESC, v.run_id DESC LIMIT :visited

-- name: run_list_ended_customer_end
-- Ended runs of one customer, most recently ended first, from its next window of rows.
SELECT {{ended_columns}} FROM (SELECT v.* {{customer_ends}}) AS h {{ended_names}}
WHERE TRUE {{ended_filters}}
ORDER BY h.finished_at DESC, h.run_id DESC LIMIT :limit;

-- name: run_window_customer_end
-- Where the next window of a customer's ended runs, ordered by end, ends; no row if it is not full.
SELECT w.finished_at, w.run_id FROM (
    SELECT e.finished_at, e.run_id, count(*) OVER () AS visited FROM (
        SELECT v.finished_at, v.run_id {{customer_ends}}) AS e) AS w
WHERE w.visited = :visited ORDER BY w.finished_at, w.run_id LIMIT 1;

-- name: run_list_ended_time
-- Ended runs of all customers in a window of time, most recently ended first, each with the number
-- of rows in the window; a single row with only that number if none matches. Of the window, only
-- the keys are kept. The times are repeated for `h`, so that few partitions are planned.
-- scope: system (operators)
WITH w AS MATERIALIZED (
    SELECT v.run_id, v.finished_at, v.processor, v.config_id, v.final_state, v.partition,
        v.trigger_message_id, v.error_type, v.slot, v.sla_met, v.flow_id, v.is_dead
    FROM history v WHERE v.finished_at >= :ended_from AND v.finished_at < :ended_to LIMIT :visited
), m AS (
    SELECT h.run_id, h.finished_at FROM w h JOIN processors p ON p.processor = h.processor
    WHERE (h.finished_at, h.run_id) < (:ended_before, :before) {{ended_filters}}
    ORDER BY h.finished_at DESC, h.run_id DESC LIMIT :limit
)
SELECT n.visited, {{ended_columns}} FROM (SELECT count(*) AS visited FROM w) AS n
LEFT JOIN (m JOIN history h ON h.run_id = m.run_id AND h.finished_at = m.finished_at
        AND h.finished_at >= :ended_from AND h.finished_at < :ended_to
    {{ended_names}}) ON TRUE
ORDER BY h.finished_at DESC, h.run_id DESC;

-- fragment: counted_processors
FROM processors p WHERE {{of_processor}}

-- fragment: counted_before
FROM run_counts r WHERE r.customer = 0 AND r.processor = p.processor AND r.at < :before

-- name: run_quarter_any
-- The newest quarter of an hour before a time in which runs of these processors ended.
-- scope: system (counters of all customers)
SELECT max(q.at) FROM (SELECT (SELECT r.at {{counted_before}}
    ORDER BY r.at DESC LIMIT 1) AS at {{counted_processors}}) AS q;

-- name: run_quarter_completed
-- The same for runs that completed.
-- scope: system (counters of all customers)
SELECT max(q.at) FROM (SELECT (SELECT r.at {{counted_before}} AND r.completed > 0
    ORDER BY r.at DESC LIMIT 1) AS at {{counted_processors}}) AS q;

-- name: run_quarter_cancelled
-- The same for runs that were cancelled.
-- scope: system (counters of all customers)
SELECT max(q.at) FROM (SELECT (SELECT r.at {{counted_before}} AND r.cancelled > 0
    ORDER BY r.at DESC LIMIT 1) AS at {{counted_processors}}) AS q;

-- name: run_quarter_failed
-- The same for runs that failed, optionally on a day with this type of error.
-- scope: system (counters of all customers)
SELECT max(q.at) FROM (SELECT (SELECT r.at {{counted_before}} AND r.failed > 0
    AND (CAST(:error_type AS text) IS NULL OR EXISTS (SELECT 1 FROM failure_counts f
        WHERE f.customer = 0 AND f.day_at = r.at - r.at % 86400000000
            AND f.processor = r.processor AND f.error_type = :error_type))
    ORDER BY r.at DESC LIMIT 1) AS at {{counted_processors}}) AS q;

-- name: run_quarter_first
-- The first quarter of an hour with counters.
-- scope: system (counters of all customers)
SELECT min(at) FROM run_counts WHERE customer = 0;

-- name: run_config_owner
-- The customer of a config, so that its runs are found by their customer.
-- scope: system (the caller filters by its own customer)
SELECT customer FROM configs WHERE config_id = :config_id;

-- name: run_flow_owner
-- The customer and the correlation id of a flow, by which its ended runs are found.
-- scope: system (the caller filters by its own customer)
SELECT customer, correlation_id FROM flows WHERE flow_id = :flow_id;

-- fragment: ended_rank
CASE WHEN CAST(:by_end AS boolean) THEN h.finished_at ELSE 0 END

-- fragment: few_ended
-- The order of a few rows: by their end or, with :ended_before 0, by id.
AND ({{ended_rank}}, h.run_id) < (:ended_before, :before)
ORDER BY {{ended_rank}} DESC, h.run_id DESC LIMIT :limit

-- name: run_list_ended_correlation
-- Ended runs with a correlation id, found by its index, newest first.
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.correlation_id {{pg:COLLATE "C"}} = :correlation_id
    AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer) {{ended_filters}} {{few_ended}};

-- name: run_list_ended_message
-- Ended runs that a message triggered, found by its index, newest first.
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.trigger_message_id = :message_id
    AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer) {{ended_filters}} {{few_ended}};

-- name: run_list_ended_partition
-- Ended runs of a customer's partition, found by its index, newest first.
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.customer = :customer AND h.partition {{pg:COLLATE "C"}} = :partition
    {{ended_filters}} {{few_ended}};

-- name: run_list_ended_ids
-- Ended runs among these ids, newest first.
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.run_id {{any ids}}
    AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer)
    AND (CAST(:correlation_id AS text) IS NULL OR h.correlation_id = :correlation_id)
    {{ended_filters}} {{few_ended}};

-- name: run_search_correlation
-- The first ended runs, in the order of the index, whose correlation id has a prefix.
SELECT h.run_id FROM history h
WHERE h.correlation_id {{pg:COLLATE "C"}} >= :prefix
    AND h.correlation_id {{pg:COLLATE "C"}} < :prefix_end
    AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer)
ORDER BY h.correlation_id {{pg:COLLATE "C"}} LIMIT :n;

-- name: run_search_partition
-- The first ended runs of a customer, in the order of the index, whose partition has a prefix.
SELECT h.run_id FROM history h
WHERE h.customer = :customer AND h.partition {{pg:COLLATE "C"}} >= :prefix
    AND h.partition {{pg:COLLATE "C"}} < :prefix_end
ORDER BY h.partition {{pg:COLLATE "C"}} LIMIT :n;

-- name: run_tally_held
-- Claimed and running runs by state; they have their own index.
-- scope: system (operators; a tenant's key adds :customer)
SELECT r.state, count(*) FROM runs r JOIN processors p ON p.processor = r.processor
WHERE r.admission = 9 {{of_customer}} AND {{of_processor}}
GROUP BY r.state;

-- fragment: tally_pending
AS r JOIN processors p ON p.processor = r.processor GROUP BY r.admission

-- name: run_tally_pending
-- The newest pending runs by admission: how many there are, and how many of a processor.
-- scope: system (operators)
SELECT r.admission, count(*), sum(CASE WHEN {{of_processor}} THEN 1 ELSE 0 END)
FROM (SELECT v.admission, v.processor FROM runs v WHERE v.admission < 9
    ORDER BY v.run_id DESC LIMIT :visited) {{tally_pending}};

-- name: run_tally_pending_customer
-- The same for one customer, in any order.
SELECT r.admission, count(*), sum(CASE WHEN {{of_processor}} THEN 1 ELSE 0 END)
FROM (SELECT v.admission, v.processor FROM runs v
    WHERE v.customer = :customer AND v.admission < 9 LIMIT :visited) {{tally_pending}};

-- name: run_tally_ended_customer
-- The last runs of a customer that ended since a time, by state.
SELECT h.final_state, count(*) FROM (
    SELECT v.final_state FROM history v WHERE v.customer = :customer AND v.finished_at >= :since
    ORDER BY v.finished_at DESC LIMIT :visited) AS h
GROUP BY h.final_state;
