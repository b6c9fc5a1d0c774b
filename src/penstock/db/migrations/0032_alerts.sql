-- migration: alerts
-- breaking: no
-- What becomes of an alert: acknowledged, silenced, and sent to people through channels.

-- both
-- pipeline: name of the pipeline concerned, for routes and silences. silence: the silence that holds
-- its notices back.
ALTER TABLE alerts ADD COLUMN pipeline text;
ALTER TABLE alerts ADD COLUMN acknowledged_at bigint;
ALTER TABLE alerts ADD COLUMN acknowledged_by text;
ALTER TABLE alerts ADD COLUMN note text;
ALTER TABLE alerts ADD COLUMN silence bigint;
CREATE INDEX alerts_open_of_rule ON alerts (rule, alert_id) WHERE state <> 'resolved';
CREATE INDEX alerts_silenced ON alerts (silence) WHERE silence IS NOT NULL;
CREATE INDEX alerts_of_rule ON alerts (rule, opened_at);

-- Alerts that match every given field make no notices between starts_at and ends_at. source: the
-- maintenance window of the settings that made it, with its start.
CREATE TABLE silences (
    silence_id {{id}},
    customer bigint,
    pipeline text,
    rule text,
    severity text,
    dedupe_key text,
    starts_at bigint NOT NULL,
    ends_at bigint NOT NULL,
    reason text NOT NULL,
    source text UNIQUE,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    ended_by text,
    CHECK (starts_at <= ends_at)
);
CREATE INDEX silences_by_end ON silences (ends_at);

-- Changes of alerts that no alert sender has read yet.
CREATE TABLE alert_changes (
    change_id {{id}},
    alert_id bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('opened', 'escalated', 'acknowledged', 'resolved')),
    severity text NOT NULL,
    at bigint NOT NULL
);

-- Channels as the settings of the running processes declare them, and how they do. token and
-- until_at: the lease of the process that sends through it; notices leave one after the other.
CREATE TABLE alert_channels (
    name text NOT NULL PRIMARY KEY,
    kind text NOT NULL,
    target text NOT NULL,
    routes text NOT NULL,
    fallback text,
    declared_at bigint NOT NULL,
    last_sent_at bigint,
    last_error text,
    last_error_at bigint,
    failing_since bigint,
    failures integer NOT NULL DEFAULT 0,
    next_try_at bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    until_at bigint NOT NULL DEFAULT 0
);

-- One message to a channel about a change of one or more alerts. origin: the channel that it was
-- for, if its fallback sends it. Its items do not change after the first attempt.
CREATE TABLE alert_notices (
    notice_id {{id}},
    channel text NOT NULL,
    origin text,
    kind text NOT NULL,
    grouping text NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'dead')),
    attempts integer NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    ended_at bigint,
    last_error text
);
CREATE INDEX alert_notices_waiting ON alert_notices (channel, notice_id) WHERE state = 'waiting';
CREATE INDEX alert_notices_dead ON alert_notices (channel, notice_id) WHERE state = 'dead';
CREATE INDEX alert_notices_ended ON alert_notices (ended_at) WHERE ended_at IS NOT NULL;

-- What a notice says about an alert, as it was at the change.
CREATE TABLE alert_notice_items (
    notice_id bigint NOT NULL,
    alert_id bigint NOT NULL,
    severity text NOT NULL,
    message text NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (notice_id, alert_id)
);
CREATE INDEX alert_notice_items_of_alert ON alert_notice_items (alert_id);

-- Conditions of rules that hold, since when; an alert opens once one has held for long enough.
CREATE TABLE alert_conditions (
    dedupe_key text NOT NULL PRIMARY KEY,
    rule text NOT NULL,
    since_at bigint NOT NULL,
    last_at bigint NOT NULL
);
-- Rules as the settings of the running processes declare them.
CREATE TABLE alert_rules (
    rule text NOT NULL PRIMARY KEY,
    condition text NOT NULL,
    severities text NOT NULL,
    source text NOT NULL,
    declared_at bigint NOT NULL
);
INSERT INTO counters (name, value) VALUES ('alerts_evaluated_at', 0), ('alerts_heartbeat_at', 0);

-- only: postgres
CREATE FUNCTION alert_severity_rank(severity text) RETURNS integer LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE severity WHEN 'INFO' THEN 0 WHEN 'MEDIUM' THEN 1 WHEN 'HIGH' THEN 2 ELSE 3 END $$;

CREATE FUNCTION alert_change() RETURNS trigger LANGUAGE plpgsql AS
$$
BEGIN
    INSERT INTO alert_changes (alert_id, kind, severity, at)
    VALUES (NEW.alert_id, TG_ARGV[0], NEW.severity, CASE TG_ARGV[0]
        WHEN 'resolved' THEN coalesce(NEW.closed_at, NEW.last_at)
        WHEN 'acknowledged' THEN coalesce(NEW.acknowledged_at, NEW.last_at)
        ELSE NEW.last_at END);
    RETURN NULL;
END
$$;
CREATE TRIGGER alert_change_opened AFTER INSERT ON alerts
    FOR EACH ROW EXECUTE FUNCTION alert_change('opened');
CREATE TRIGGER alert_change_escalated AFTER UPDATE OF severity ON alerts
    FOR EACH ROW WHEN (NEW.state <> 'resolved'
        AND alert_severity_rank(NEW.severity) > alert_severity_rank(OLD.severity))
    EXECUTE FUNCTION alert_change('escalated');
CREATE TRIGGER alert_change_acknowledged AFTER UPDATE OF state ON alerts
    FOR EACH ROW WHEN (OLD.state = 'open' AND NEW.state = 'acknowledged')
    EXECUTE FUNCTION alert_change('acknowledged');
CREATE TRIGGER alert_change_resolved AFTER UPDATE OF state ON alerts
    FOR EACH ROW WHEN (OLD.state <> 'resolved' AND NEW.state = 'resolved')
    EXECUTE FUNCTION alert_change('resolved');

CREATE FUNCTION tenant_rules_0032()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('silences', 'SELECT, INSERT, UPDATE', 'customer = (SELECT tenant_customer())'),
    ('alert_changes', 'INSERT', 'open'),
    ('alert_channels', NULL, NULL),
    ('alert_notices', NULL, NULL),
    ('alert_notice_items', NULL, NULL),
    ('alert_conditions', NULL, NULL),
    ('alert_rules', NULL, NULL)
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();

-- only: sqlite
CREATE TRIGGER alert_change_opened AFTER INSERT ON alerts
BEGIN
    INSERT INTO alert_changes (alert_id, kind, severity, at)
    VALUES (NEW.alert_id, 'opened', NEW.severity, NEW.last_at);
END;
CREATE TRIGGER alert_change_escalated AFTER UPDATE OF severity ON alerts
WHEN NEW.state <> 'resolved'
    AND CASE NEW.severity WHEN 'INFO' THEN 0 WHEN 'MEDIUM' THEN 1 WHEN 'HIGH' THEN 2 ELSE 3 END
    > CASE OLD.severity WHEN 'INFO' THEN 0 WHEN 'MEDIUM' THEN 1 WHEN 'HIGH' THEN 2 ELSE 3 END
BEGIN
    INSERT INTO alert_changes (alert_id, kind, severity, at)
    VALUES (NEW.alert_id, 'escalated', NEW.severity, NEW.last_at);
END;
CREATE TRIGGER alert_change_acknowledged AFTER UPDATE OF state ON alerts
WHEN OLD.state = 'open' AND NEW.state = 'acknowledged'
BEGIN
    INSERT INTO alert_changes (alert_id, kind, severity, at)
    VALUES (NEW.alert_id, 'acknowledged', NEW.severity,
        coalesce(NEW.acknowledged_at, NEW.last_at));
END;
CREATE TRIGGER alert_change_resolved AFTER UPDATE OF state ON alerts
WHEN OLD.state <> 'resolved' AND NEW.state = 'resolved'
BEGIN
    INSERT INTO alert_changes (alert_id, kind, severity, at)
    VALUES (NEW.alert_id, 'resolved', NEW.severity, coalesce(NEW.closed_at, NEW.last_at));
END;
