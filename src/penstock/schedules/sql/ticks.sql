-- Ticks of the services of scheduler processes.

-- name: ticks_put
-- Record that services have made a step, and in which interval they make one.
-- scope: system (counters have no customer)
-- batch: service text, interval_us bigint
INSERT INTO counters (name, value)
SELECT 'tick:' || batch.service, {{now}} FROM {{batch}} WHERE TRUE
ON CONFLICT (name) DO UPDATE SET value = greatest(counters.value, excluded.value);
INSERT INTO counters (name, value)
SELECT 'every:' || batch.service, batch.interval_us FROM {{batch}} WHERE TRUE
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE counters.value <> excluded.value;

-- name: ticks_read
-- Services by name, with their last tick and interval.
-- scope: system (counters have no customer)
SELECT substr(t.name, 6), t.value,
    coalesce((SELECT e.value FROM counters e WHERE e.name = 'every:' || substr(t.name, 6)), 0)
FROM counters t WHERE t.name LIKE 'tick:%' ORDER BY t.name;
