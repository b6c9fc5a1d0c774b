-- States of alerts, silences, changes to report, channels and notices.

-- name: alert_acknowledge
-- Acknowledge open alerts.
-- scope: system (the caller has checked the alerts)
UPDATE alerts SET state = 'acknowledged', acknowledged_at = {{now}}, acknowledged_by = :actor,
    note = coalesce(CAST(:note AS text), note)
WHERE alert_id {{any ids}} AND state = 'open' RETURNING alert_id;

-- name: alert_resolve_ids
-- Resolve alerts manually.
-- scope: system (the caller has checked the alerts)
UPDATE alerts SET state = 'resolved', closed_at = {{now}}, closed_by = :actor,
    note = coalesce(CAST(:note AS text), note)
WHERE alert_id {{any ids}} AND state <> 'resolved' RETURNING alert_id;

-- name: alert_of_customer
-- An alert, optionally only if it belongs to a customer.
SELECT {{alert_columns}}
FROM alerts a LEFT JOIN customers c ON c.customer = a.customer
WHERE a.alert_id = :alert_id AND (CAST(:customer AS bigint) IS NULL OR a.customer = :customer);

-- name: alert_notified
-- The notices about alerts, oldest first.
-- scope: system (operators; never read for a tenant)
SELECT i.alert_id, n.channel, n.kind, n.state, coalesce(n.ended_at, i.at)
FROM alert_notice_items i JOIN alert_notices n ON n.notice_id = i.notice_id
WHERE i.alert_id {{any ids}} ORDER BY n.notice_id;

-- name: alert_rule_counts
-- Alerts by rule: when the last one opened, and how many are open.
-- scope: system (operators)
SELECT rule, max(opened_at), sum(CASE WHEN state <> 'resolved' THEN 1 ELSE 0 END)
FROM alerts GROUP BY rule;

-- name: alert_open_counts
-- Open alerts by rule and severity.
-- scope: system (operators)
SELECT rule, severity, count(*) FROM alerts WHERE state <> 'resolved' GROUP BY rule, severity;

-- name: alert_rule_days
-- Alerts by rule and day since a time; day 0 is the first.
-- scope: system (operators)
SELECT rule, (opened_at - :since) / 86400000000, count(*)
FROM alerts WHERE opened_at >= :since GROUP BY 1, 2;

-- name: silence_put
-- Add a silence; a maintenance window adds each of its silences once.
-- scope: system (the caller has checked the customer)
INSERT INTO silences (customer, pipeline, rule, severity, dedupe_key, starts_at, ends_at, reason,
    source, created_at, created_by)
VALUES (:customer, :pipeline, :rule, :severity, :dedupe_key, coalesce(CAST(:starts_at AS bigint),
    {{now}}), :ends_at, :reason, :source, {{now}}, :actor)
ON CONFLICT (source) DO NOTHING RETURNING silence_id;

-- fragment: silence_columns
s.silence_id, c.customer_id, s.pipeline, s.rule, s.severity, s.dedupe_key, s.reason, s.starts_at,
    s.ends_at, s.starts_at <= {{now}} AND s.ends_at > {{now}}, (SELECT count(*) FROM alerts a
    WHERE a.silence = s.silence_id AND a.state = 'open'), s.created_at, s.created_by, s.ended_by

-- name: silence_list
-- Silences, newest first; optionally only those that have not ended.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{silence_columns}}
FROM silences s LEFT JOIN customers c ON c.customer = s.customer
WHERE s.silence_id < :before AND (:ended OR s.ends_at > {{now}})
    AND (CAST(:customer AS bigint) IS NULL OR s.customer = :customer)
ORDER BY s.silence_id DESC LIMIT :limit;

-- name: silence_get
-- One silence, optionally only if it belongs to a customer.
SELECT {{silence_columns}}
FROM silences s LEFT JOIN customers c ON c.customer = s.customer
WHERE s.silence_id = :silence_id
    AND (CAST(:customer AS bigint) IS NULL OR s.customer = :customer);

-- name: silence_end
-- End a silence now.
-- scope: system (the caller has checked the silence)
UPDATE silences SET ends_at = greatest(starts_at, {{now}}), ended_by = :actor
WHERE silence_id = :silence_id AND ends_at > {{now}} RETURNING silence_id;

-- name: silences_exist
-- Whether a silence applies now, or an open alert is marked as silenced.
-- scope: system (alert sender)
SELECT EXISTS (SELECT 1 FROM silences WHERE ends_at > {{now}} AND starts_at <= {{now}}),
    EXISTS (SELECT 1 FROM alerts WHERE silence IS NOT NULL AND state <> 'resolved');

-- name: alert_sender_work
-- The current time, and whether there are changes to report, silences to apply or end, and notices
-- to send.
-- scope: system (alert sender)
SELECT {{now}}, EXISTS (SELECT 1 FROM alert_changes),
    EXISTS (SELECT 1 FROM silences WHERE ends_at > {{now}} AND starts_at <= {{now}})
    OR EXISTS (SELECT 1 FROM alerts WHERE silence IS NOT NULL AND state <> 'resolved'),
    EXISTS (SELECT 1 FROM alert_notices WHERE state = 'waiting');

-- name: silences_apply
-- Mark open alerts that a silence matches.
-- scope: system (alert sender, or the caller's own rows)
UPDATE alerts SET silence = (SELECT min(s.silence_id) FROM silences s WHERE {{silence_matches}})
WHERE state = 'open' AND silence IS NULL
    AND EXISTS (SELECT 1 FROM silences s WHERE {{silence_matches}});

-- fragment: silence_matches
s.starts_at <= {{now}} AND s.ends_at > {{now}}
    AND (s.rule IS NULL OR s.rule = alerts.rule)
    AND (s.severity IS NULL OR s.severity = alerts.severity)
    AND (s.customer IS NULL OR s.customer = alerts.customer)
    AND (s.pipeline IS NULL OR s.pipeline = alerts.pipeline)
    AND (s.dedupe_key IS NULL OR s.dedupe_key = alerts.dedupe_key)

-- name: silences_lift
-- Unmark alerts whose silence has ended; those that still fire are reported now.
-- scope: system (alert sender)
-- batch: alert_id bigint
INSERT INTO alert_changes (alert_id, kind, severity, at)
SELECT a.alert_id, 'opened', a.severity, {{now}} FROM {{batch}}
JOIN alerts a ON a.alert_id = batch.alert_id WHERE a.state = 'open';

-- name: silences_over
-- Unmark open alerts whose silence no longer applies.
-- scope: system (alert sender, or the caller's own rows)
UPDATE alerts SET silence = NULL
WHERE silence IS NOT NULL AND state <> 'resolved' AND NOT EXISTS (SELECT 1 FROM silences s
    WHERE s.silence_id = alerts.silence AND {{silence_matches}})
RETURNING alert_id;

-- name: alert_sender_lock [postgres]
-- Allow one transaction at a time to turn changes into notices, so that they keep their order.
-- scope: system (a lock, no rows)
SELECT pg_try_advisory_xact_lock(7231010);

-- name: alert_sender_lock [sqlite]
-- differs because SQLite has one writer.
-- scope: system (a lock, no rows)
SELECT TRUE;

-- name: alert_changes_take
-- Delete and return the oldest changes.
-- scope: system (alert sender)
DELETE FROM alert_changes WHERE change_id IN (
    SELECT change_id FROM alert_changes ORDER BY change_id LIMIT :n)
RETURNING change_id, alert_id, kind, severity, at;

-- name: alert_changes_oldest
-- Time of the oldest waiting change, and the current time.
-- scope: system (alert sender)
SELECT (SELECT at FROM alert_changes ORDER BY change_id LIMIT 1), {{now}};

-- name: alert_notice_channels
-- The channels that have a notice about alerts.
-- scope: system (alert sender)
SELECT DISTINCT i.alert_id, n.channel
FROM alert_notice_items i JOIN alert_notices n ON n.notice_id = i.notice_id
WHERE i.alert_id {{any ids}} AND n.kind IN ('opened', 'escalated');

-- name: alert_notice_last
-- The newest waiting notice of a group, locked, with the number of its alerts.
-- scope: system (alert sender)
SELECT n.notice_id, n.kind, n.attempts,
    (SELECT count(*) FROM alert_notice_items i WHERE i.notice_id = n.notice_id)
FROM alert_notices n
WHERE n.channel = :channel AND n.state = 'waiting' AND n.grouping = :grouping
ORDER BY n.notice_id DESC LIMIT 1 {{pg:FOR UPDATE OF n}};

-- name: alert_notice_put
-- Add a notice.
-- scope: system (alert sender)
INSERT INTO alert_notices (channel, kind, grouping, created_at)
VALUES (:channel, :kind, :grouping, {{now}}) RETURNING notice_id;

-- name: alert_notice_items_put
-- Add alerts to a notice that has not been tried.
-- scope: system (alert sender)
-- batch: alert_id bigint, severity text, message text, at bigint
INSERT INTO alert_notice_items (notice_id, alert_id, severity, message, at)
SELECT :notice_id, batch.alert_id, batch.severity, batch.message, batch.at FROM {{batch}}
WHERE true ON CONFLICT (notice_id, alert_id) DO NOTHING;

-- name: alert_notice_items
-- The content of a notice, with the alerts as they are now.
-- scope: system (alert sender)
SELECT i.alert_id, i.severity, i.message, i.at, a.rule, c.customer_id, a.pipeline, a.subject_kind,
    a.subject, a.detail, a.opened_at, a.acknowledged_by, a.note, a.closed_by
FROM alert_notice_items i JOIN alerts a ON a.alert_id = i.alert_id
LEFT JOIN customers c ON c.customer = a.customer
WHERE i.notice_id = :notice_id ORDER BY i.alert_id LIMIT :limit;

-- name: alert_channel_declare
-- Store the declaration of a channel; its results are kept.
-- scope: system (alert sender)
-- batch: name text, kind text, target text, routes text, fallback text
INSERT INTO alert_channels (name, kind, target, routes, fallback, declared_at)
SELECT batch.name, batch.kind, batch.target, batch.routes, batch.fallback, {{now}} FROM {{batch}}
WHERE true ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, target = excluded.target,
    routes = excluded.routes, fallback = excluded.fallback, declared_at = excluded.declared_at;

-- name: alert_channels_declared
-- When each channel was last declared by a running process.
-- scope: system (alert sender)
SELECT name, declared_at FROM alert_channels;

-- name: alert_channel_list
-- Channels by name, with their waiting and abandoned notices.
-- scope: system (operators)
SELECT h.name, h.kind, h.target, h.routes, h.fallback, h.declared_at, h.last_sent_at, h.last_error,
    h.last_error_at, h.failing_since, h.failures, h.next_try_at,
    (SELECT count(*) FROM alert_notices n WHERE n.channel = h.name AND n.state = 'waiting'),
    (SELECT count(*) FROM alert_notices n WHERE n.channel = h.name AND n.state = 'dead'), {{now}}
FROM alert_channels h ORDER BY h.name LIMIT 1000;

-- name: alert_channels_health
-- Health of channels, for choosing fallbacks.
-- scope: system (alert sender)
SELECT name, failures, failing_since FROM alert_channels;

-- name: alert_channel_lease
-- Lease a channel that may be tried and has a notice to send. Times that are further ahead than a
-- lease or a pause can be are from before the clock was set back.
-- scope: system (alert sender)
UPDATE alert_channels SET token = token + 1, until_at = {{now}} + :lease_us
WHERE name = :name AND (until_at <= {{now}} OR until_at > {{now}} + 2 * :lease_us)
    AND (next_try_at <= {{now}} OR next_try_at > {{now}} + 2 * :pause_us) AND EXISTS (
    SELECT 1 FROM alert_notices n WHERE n.channel = :name AND n.state = 'waiting')
RETURNING token, failures;

-- name: alert_channel_extend
-- Extend the lease of a channel for its next notice.
-- scope: system (alert sender)
UPDATE alert_channels SET until_at = {{now}} + :lease_us
WHERE name = :name AND token = :token AND until_at > {{now}} RETURNING token;

-- name: alert_channel_free
-- End the lease of a channel.
-- scope: system (alert sender)
UPDATE alert_channels SET until_at = 0 WHERE name = :name AND token = :token;

-- name: alert_notice_next
-- Count an attempt of the oldest notice of a channel and return it; tests go first.
-- scope: system (alert sender)
UPDATE alert_notices SET attempts = attempts + 1 WHERE notice_id = (
    SELECT notice_id FROM alert_notices WHERE channel = :channel AND state = 'waiting'
    ORDER BY CASE kind WHEN 'test' THEN 0 ELSE 1 END, notice_id LIMIT 1)
RETURNING notice_id, origin, kind, attempts, created_at, {{now}};

-- name: alert_notice_end
-- Record that a notice was sent or abandoned.
-- scope: system (alert sender)
UPDATE alert_notices SET state = :state, ended_at = {{now}},
    last_error = coalesce(CAST(:error AS text), last_error)
WHERE notice_id = :notice_id AND state = 'waiting' RETURNING notice_id;

-- name: alert_notice_failed
-- Record why a notice was not sent.
-- scope: system (alert sender)
UPDATE alert_notices SET last_error = :error WHERE notice_id = :notice_id AND state = 'waiting';

-- name: alert_channel_sent
-- Record a success of a channel.
-- scope: system (alert sender)
UPDATE alert_channels SET failures = 0, failing_since = NULL, last_sent_at = {{now}}, next_try_at = 0
WHERE name = :name;

-- name: alert_channel_failed
-- Record a failure of a channel, end its lease, and set the time of its next attempt.
-- scope: system (alert sender)
UPDATE alert_channels SET failures = failures + 1, last_error = :error, last_error_at = {{now}},
    next_try_at = {{now}} + :delay_us, until_at = 0,
    failing_since = coalesce(failing_since, {{now}})
WHERE name = :name AND token = :token RETURNING failures, failing_since;

-- name: alert_channel_error
-- Record an error that concerns one notice only.
-- scope: system (alert sender)
UPDATE alert_channels SET last_error = :error, last_error_at = {{now}} WHERE name = :name;

-- name: alert_channel_try_now
-- Let the next attempt of a channel be made immediately.
-- scope: system (operators)
UPDATE alert_channels SET next_try_at = 0 WHERE name = :name RETURNING name;

-- name: alert_notices_move
-- Move notices that have waited for a failing channel to its fallback.
-- scope: system (alert sender)
UPDATE alert_notices SET origin = channel, channel = :fallback
WHERE channel = :channel AND state = 'waiting' AND origin IS NULL
    AND kind NOT IN ('test', 'recovered')
    AND (created_at <= {{now}} - :after_us OR created_at > {{now}} + :after_us)
    AND EXISTS (SELECT 1 FROM alert_channels h WHERE h.name = :channel AND h.until_at <= {{now}})
RETURNING notice_id;

-- name: alert_notices_alerts
-- The alerts of notices.
-- scope: system (alert sender)
SELECT notice_id, alert_id FROM alert_notice_items WHERE notice_id {{any ids}}
ORDER BY notice_id, alert_id;

-- name: alert_notice_copy
-- Add an empty copy of a notice for each of its alerts.
-- scope: system (alert sender)
INSERT INTO alert_notices (channel, origin, kind, grouping, created_at, last_error)
SELECT n.channel, n.origin, n.kind, n.grouping, n.created_at, n.last_error
FROM alert_notices n JOIN alert_notice_items i ON i.notice_id = n.notice_id
WHERE n.notice_id = :notice_id RETURNING notice_id;

-- name: alert_notice_items_split
-- Give each alert of a notice to one of its copies.
-- scope: system (alert sender)
-- batch: alert_id bigint, copy_id bigint
UPDATE alert_notice_items SET notice_id = batch.copy_id FROM {{batch}}
WHERE alert_notice_items.notice_id = :notice_id AND alert_notice_items.alert_id = batch.alert_id;

-- name: alert_notice_delete
-- Delete a notice whose copies replace it.
-- scope: system (alert sender)
DELETE FROM alert_notices WHERE notice_id = :notice_id;

-- name: alert_notices_give_up
-- Abandon notices that have waited too long.
-- scope: system (alert sender)
UPDATE alert_notices SET state = 'dead', ended_at = {{now}},
    last_error = coalesce(last_error, 'no process has this channel')
WHERE state = 'waiting' AND created_at <= {{now}} - :after_us
    AND NOT EXISTS (SELECT 1 FROM alert_channels h
        WHERE h.name = alert_notices.channel AND h.until_at > {{now}})
RETURNING channel;

-- name: alert_notices_resend
-- Put abandoned notices back into the queue of their channel.
-- scope: system (operators)
UPDATE alert_notices SET state = 'waiting', ended_at = NULL, created_at = {{now}}
WHERE channel = :channel AND state = 'dead' AND kind <> 'test';

-- name: alert_notice_list
-- Notices, newest first.
-- scope: system (operators)
SELECT n.notice_id, n.channel, n.origin, n.kind, n.state, n.attempts,
    (SELECT count(*) FROM alert_notice_items i WHERE i.notice_id = n.notice_id), n.created_at,
    n.ended_at, n.last_error
FROM alert_notices n
WHERE n.notice_id < :before AND (CAST(:channel AS text) IS NULL OR n.channel = :channel)
    AND (CAST(:state AS text) IS NULL OR n.state = :state)
ORDER BY n.notice_id DESC LIMIT :limit;

-- name: alert_notice_get
-- One notice.
-- scope: system (operators)
SELECT n.notice_id, n.channel, n.origin, n.kind, n.state, n.attempts,
    (SELECT count(*) FROM alert_notice_items i WHERE i.notice_id = n.notice_id), n.created_at,
    n.ended_at, n.last_error
FROM alert_notices n WHERE n.notice_id = :notice_id;

-- name: evaluation_first
-- Measure the time without an evaluation from the first pass that begins.
-- scope: system (counters have no customer)
UPDATE counters SET value = {{now}} WHERE name = :name AND value = 0;

-- name: evaluation_end
-- Record that a pass has ended.
-- scope: system (counters have no customer)
UPDATE counters SET value = {{now}} WHERE name = :name;

-- name: evaluation_apply
-- Record the beginning of a pass that is applied; no row means that a later pass was applied. A time
-- in the future is one from before the clock was set back.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES (:name, :started)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE counters.value <= excluded.value OR counters.value > {{now}}
RETURNING value;

-- name: alert_notices_prune
-- Delete notices that ended long ago.
-- scope: system (pruner)
DELETE FROM alert_notices WHERE notice_id IN (
    SELECT notice_id FROM alert_notices WHERE ended_at < :before ORDER BY ended_at LIMIT :n);

-- name: alert_notice_items_prune
-- Delete the content of deleted notices.
-- scope: system (pruner)
DELETE FROM alert_notice_items WHERE notice_id IN (
    SELECT i.notice_id FROM alert_notice_items i
    WHERE NOT EXISTS (SELECT 1 FROM alert_notices n WHERE n.notice_id = i.notice_id)
    ORDER BY i.notice_id LIMIT :n);

-- name: silences_prune
-- Delete silences that ended long ago.
-- scope: system (pruner)
DELETE FROM silences WHERE silence_id IN (
    SELECT silence_id FROM silences WHERE ends_at < :before ORDER BY ends_at LIMIT :n)
    AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.silence = silences.silence_id);

-- name: alert_changes_prune
-- Delete changes that no alert sender has read for a long time.
-- scope: system (pruner)
DELETE FROM alert_changes WHERE change_id IN (
    SELECT change_id FROM alert_changes WHERE at < :before ORDER BY change_id LIMIT :n);
