-- Common causes of failing configs: many configs of a pipeline that fail in the same way.

-- name: common_causes
-- For the processor and error type of each of these dead runs: how many configs failed that way
-- within the window, and how many configs of the pipeline are active or failed that way.
-- scope: system (operators; row-level security restricts a bound key to its customer)
SELECT p.pipeline, k.runs, k.customer, l.name, p.name, k.error_type,
    {{warehouse_of_pipeline}},
    (SELECT count(DISTINCT d.config_id) FROM dead_letters d
        WHERE d.kind = 'run' AND d.processor = k.processor AND d.error_type = k.error_type
            AND d.died_at >= {{now}} - :window_us AND d.config_id IS NOT NULL),
    (SELECT count(*) FROM configs c WHERE c.pipeline = p.pipeline AND c.is_active
        AND c.deleted_at IS NULL)
FROM (
    SELECT g.processor, g.error_type, min(g.customer) AS customer,
        '[' || {{joined_subjects}} || ']' AS runs
    FROM dead_letters g WHERE g.kind = 'run' AND g.subject {{any ids}}
    GROUP BY g.processor, g.error_type) AS k
    JOIN processors p ON p.processor = k.processor
    JOIN pipelines l ON l.pipeline = p.pipeline;

-- fragment: joined_subjects [postgres]
string_agg(g.subject::text, ',')

-- fragment: joined_subjects [sqlite]
group_concat(g.subject, ',')

-- fragment: warehouse_of_pipeline [postgres]
l.definition::json ->> 'warehouse'

-- fragment: warehouse_of_pipeline [sqlite]
json_extract(l.definition, '$.warehouse')

-- name: alert_is_fresh
-- Whether an alert is open and was counted recently.
-- scope: system (alerts name their customer)
SELECT 1 FROM alerts WHERE dedupe_key = :dedupe_key AND state <> 'resolved'
    AND last_at > {{now}} - :within_us;
