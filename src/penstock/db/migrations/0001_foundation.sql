-- migration: foundation
-- breaking: no
-- Customers, registry, configs, schedule, runs, history, leases, journal, outbox, audit, alerts.
-- Times are bigint microseconds since the epoch (UTC) on both engines; JSON is canonical text.

-- only: postgres
CREATE SEQUENCE token_seq;
CREATE SEQUENCE journal_seq;

-- STABLE, so that an index condition on it stays an index condition.
CREATE FUNCTION db_now() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint $$;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'rows of % never change', TG_TABLE_NAME USING ERRCODE = '23514'; END $$;

-- Weekly partitions for history and journal, from this week on; skips a week whose rows already
-- sit in the rest partition (they stay there until the retention removes them). Behind a long
-- reader the lock is not waited for: everybody else would queue up behind us. Next time, then.
CREATE FUNCTION ensure_partitions(at_us bigint, weeks bigint) RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '100ms' AS
$$
DECLARE
    week_us constant bigint := 604800000000;
    base bigint := at_us - at_us % week_us;
    made integer := 0;
    parent text;
    part text;
    lower_us bigint;
    taken boolean;
BEGIN
    FOREACH parent IN ARRAY ARRAY['history', 'journal'] LOOP
        FOR i IN 0..weeks LOOP
            lower_us := base + i * week_us;
            part := parent || '_' || to_char(to_timestamp(lower_us / 1000000) AT TIME ZONE 'UTC', 'YYYYMMDD');
            CONTINUE WHEN to_regclass(part) IS NOT NULL;
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE %I >= $1 AND %I < $2)',
                parent || '_rest', CASE parent WHEN 'history' THEN 'finished_at' ELSE 'at' END,
                CASE parent WHEN 'history' THEN 'finished_at' ELSE 'at' END)
                INTO taken USING lower_us, lower_us + week_us;
            CONTINUE WHEN taken;
            EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%s) TO (%s)',
                part, parent, lower_us, lower_us + week_us);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

CREATE FUNCTION drop_partitions(parent text, before_us bigint) RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '100ms' AS
$$
DECLARE
    part record;
    dropped integer := 0;
BEGIN
    FOR part IN
        SELECT c.relname, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''?(\d+)''?\)')::bigint AS upper_us
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = parent::regclass
    LOOP
        CONTINUE WHEN part.upper_us IS NULL OR part.upper_us > before_us;
        EXECUTE format('DROP TABLE %I', part.relname);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

-- both
CREATE TABLE counters (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO counters (name, value) VALUES ('token', 0), ('catch_up_cursor', 0);

CREATE TABLE customers (
    customer {{id}},
    customer_id text NOT NULL UNIQUE CHECK (customer_id <> ''),
    audit_n bigint NOT NULL DEFAULT 0,
    audit_head text NOT NULL DEFAULT '',
    created_at bigint NOT NULL
);

CREATE TABLE pools (
    pool {{id}},
    name text NOT NULL UNIQUE
);

-- Fairness: the last turn each customer was given, per pool and level. Customer 0 is the clock: it
-- follows the turns claimed and never goes back, so that yesterday's flood is forgiven today. Levels
-- and pools have turns of their own, because an urgent run is claimed before its turn's time.
CREATE TABLE turns (
    pool bigint NOT NULL,
    level smallint NOT NULL,
    customer bigint NOT NULL,
    pass bigint NOT NULL,
    PRIMARY KEY (pool, level, customer)
) {{fillfactor 70}};

CREATE TABLE pipelines (
    pipeline {{id}},
    name text NOT NULL UNIQUE,
    digest text NOT NULL,
    definition text NOT NULL,
    has_flow boolean NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE processors (
    processor {{id}},
    pipeline bigint NOT NULL REFERENCES pipelines (pipeline),
    phase text NOT NULL,
    name text NOT NULL,
    pool bigint NOT NULL REFERENCES pools (pool),
    is_entry boolean NOT NULL,
    is_current boolean NOT NULL DEFAULT TRUE,
    max_execution_us bigint NOT NULL,
    retry text,
    rate_second double precision NOT NULL DEFAULT 0,
    rate_gb double precision NOT NULL DEFAULT 0,
    UNIQUE (pipeline, phase, name)
);

CREATE TABLE pauses (
    scope text NOT NULL CHECK (scope IN ('all', 'customer', 'pipeline', 'config')),
    subject bigint NOT NULL,
    paused_at bigint NOT NULL,
    paused_by text NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (scope, subject)
);

CREATE TABLE cadences (
    cadence {{id}},
    cron text NOT NULL DEFAULT '',
    timezone text NOT NULL,
    interval_us bigint NOT NULL DEFAULT 0,
    UNIQUE (cron, timezone, interval_us)
);

CREATE TABLE configs (
    config_id {{id}},
    customer bigint NOT NULL REFERENCES customers (customer),
    pipeline bigint NOT NULL REFERENCES pipelines (pipeline),
    provider text NOT NULL,
    domain text NOT NULL,
    schedule_type text NOT NULL CHECK (schedule_type IN ('CRON', 'INTERVAL', 'EVENT_DRIVEN')),
    cadence bigint REFERENCES cadences (cadence),
    timezone text NOT NULL DEFAULT 'UTC',
    event_topic text,
    event_filter text,
    parameters text NOT NULL DEFAULT '{}',
    retry text,
    priority smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
    max_execution_us bigint NOT NULL,
    sla_us bigint NOT NULL,
    catch_up text NOT NULL DEFAULT 'one' CHECK (catch_up IN ('one', 'all', 'none')),
    catch_up_window_us bigint NOT NULL,
    overlap text NOT NULL DEFAULT 'skip' CHECK (overlap IN ('allow', 'skip', 'queue')),
    jitter_us bigint NOT NULL DEFAULT 0,
    offset_us bigint NOT NULL DEFAULT 0,
    is_active boolean NOT NULL DEFAULT TRUE,
    inactive_reason text,
    version bigint NOT NULL DEFAULT 1,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint
);
CREATE INDEX configs_for_customer ON configs (customer, config_id);
CREATE INDEX configs_for_topic ON configs (event_topic) WHERE event_topic IS NOT NULL;

-- Narrow and hot: one row per config that fires by the clock. evaluated_to never moves back.
CREATE TABLE schedule (
    config_id {{key}} REFERENCES configs (config_id),
    cadence bigint NOT NULL REFERENCES cadences (cadence),
    next_run_time bigint NOT NULL,
    evaluated_to bigint NOT NULL,
    catch_up text NOT NULL DEFAULT 'one',
    window_us bigint NOT NULL,
    CHECK (next_run_time > evaluated_to)
) {{fillfactor 70}};
CREATE INDEX schedule_due ON schedule (next_run_time, config_id);

CREATE TABLE config_health (
    config_id {{key}} REFERENCES configs (config_id),
    last_run_time bigint,
    last_run_status text,
    consecutive_failures integer NOT NULL DEFAULT 0
) {{fillfactor 50}};

-- Slots that did not start; a range when several were missed together.
CREATE TABLE ledger (
    config_id bigint NOT NULL,
    slot_from bigint NOT NULL,
    slot_to bigint NOT NULL,
    slots bigint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('skipped_overlap', 'skipped_missed', 'paused')),
    at bigint NOT NULL,
    PRIMARY KEY (config_id, slot_from),
    CHECK (slot_from <= slot_to AND slots >= 1)
);

CREATE TABLE flows (
    flow_id {{id}},
    customer bigint NOT NULL REFERENCES customers (customer),
    pipeline bigint NOT NULL REFERENCES pipelines (pipeline),
    config_id bigint NOT NULL DEFAULT 0,
    partition text NOT NULL,
    mode text NOT NULL,
    generation integer NOT NULL DEFAULT 1,
    state text NOT NULL DEFAULT 'IN_PROGRESS',
    correlation_id text NOT NULL,
    trigger_source text NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    UNIQUE (customer, pipeline, config_id, partition, mode, generation)
);

-- The hot queue. admission: 0 ready, 1 later, 2 paused, 3 blocked, 9 not pending.
CREATE TABLE runs (
    run_id {{id}},
    customer bigint NOT NULL,
    config_id bigint,
    processor bigint NOT NULL,
    pool bigint NOT NULL,
    flow_id bigint,
    partition text,
    mode text,
    slot bigint NOT NULL,
    scheduled_time bigint NOT NULL,
    priority smallint NOT NULL CHECK (priority BETWEEN 1 AND 10),
    level smallint NOT NULL,
    pass bigint NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'PENDING' CHECK (state IN ('PENDING', 'CLAIMED', 'RUNNING')),
    admission smallint NOT NULL,
    state_at bigint NOT NULL,
    session_id bigint,
    claimed_by text,
    claimed_at bigint,
    started_at bigint,
    token bigint NOT NULL DEFAULT 0,
    lapses smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 1,
    max_execution_us bigint NOT NULL,
    sla_us bigint,
    ordering_key text,
    parameters text,
    correlation_id text,
    parent_run_id bigint,
    root_run_id bigint,
    stales smallint NOT NULL DEFAULT 0,
    trigger_source text NOT NULL,
    trigger_message_id text,
    cancel_requested_at bigint,
    cancel_requested_by text,
    cancel_reason text,
    created_at bigint NOT NULL,
    CHECK ((state = 'PENDING') = (admission <> 9))
) {{fillfactor 80}};
-- Runs without a config never collide (NULLs differ), and a customer's live runs are found by it.
CREATE UNIQUE INDEX runs_once_per_slot ON runs (customer, config_id, slot, processor, attempt);
CREATE UNIQUE INDEX runs_once_per_flow ON runs (flow_id, processor, attempt) WHERE flow_id IS NOT NULL;
CREATE INDEX runs_ready ON runs (pool, level DESC, pass, run_id) WHERE admission = 0;
CREATE INDEX runs_paused ON runs (run_id) WHERE admission = 2;
CREATE INDEX runs_later ON runs (scheduled_time, run_id) WHERE admission = 1;
CREATE INDEX runs_held ON runs (session_id) WHERE admission = 9;
CREATE INDEX runs_in_order ON runs (ordering_key, run_id) WHERE ordering_key IS NOT NULL;

-- One row per leased thing that is renewed on its own (external runs, and later deliveries,
-- gate re-checks, limit slots). No index on until_at: renewals stay heap-only, the sweep scans.
CREATE TABLE leases (
    kind text NOT NULL,
    subject bigint NOT NULL,
    token bigint NOT NULL,
    holder text NOT NULL,
    until_at bigint NOT NULL,
    PRIMARY KEY (kind, subject)
) {{fillfactor 50}};

CREATE TABLE sessions (
    session_id {{id}},
    boot_id text NOT NULL UNIQUE,
    kind text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    pool bigint,
    slots integer NOT NULL DEFAULT 0,
    is_draining boolean NOT NULL DEFAULT FALSE,
    started_at bigint NOT NULL,
    beat_at bigint NOT NULL,
    until_at bigint NOT NULL
) {{fillfactor 50}};

CREATE TABLE progress (
    run_id {{key}},
    current_state text NOT NULL DEFAULT 'RUNNING'
        CHECK (current_state IN ('INITIALIZING', 'RUNNING', 'FINALIZING')),
    stage text,
    percent double precision CHECK (percent BETWEEN 0 AND 100),
    worker text,
    pod text,
    region text,
    estimated_completion_at bigint,
    records_extracted bigint NOT NULL DEFAULT 0,
    records_transformed bigint NOT NULL DEFAULT 0,
    records_loaded bigint NOT NULL DEFAULT 0,
    bytes_processed bigint NOT NULL DEFAULT 0,
    beat_at bigint NOT NULL
) {{fillfactor 50}};

CREATE TABLE dead_letters (
    dead_letter_id {{id}},
    kind text NOT NULL CHECK (kind IN ('run', 'delivery')),
    subject bigint NOT NULL,
    customer bigint NOT NULL,
    processor bigint,
    config_id bigint,
    partition text,
    correlation_id text,
    error_type text NOT NULL,
    error_details text,
    attempts integer NOT NULL,
    died_at bigint NOT NULL,
    status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'replayed', 'discarded')),
    resolved_at bigint,
    resolved_by text,
    resolution text,
    replays integer NOT NULL DEFAULT 0,
    UNIQUE (kind, subject)
);
CREATE INDEX dead_letters_open ON dead_letters (died_at, dead_letter_id) WHERE status = 'open';
CREATE INDEX dead_letters_for_customer ON dead_letters (customer, died_at);

CREATE TABLE alerts (
    alert_id {{id}},
    rule text NOT NULL,
    dedupe_key text NOT NULL,
    severity text NOT NULL CHECK (severity IN ('INFO', 'MEDIUM', 'HIGH', 'CRITICAL')),
    customer bigint,
    subject_kind text NOT NULL,
    subject bigint NOT NULL,
    message text NOT NULL,
    detail text NOT NULL DEFAULT '{}',
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'acknowledged', 'resolved')),
    times integer NOT NULL DEFAULT 1,
    opened_at bigint NOT NULL,
    last_at bigint NOT NULL,
    closed_at bigint,
    closed_by text
);
CREATE UNIQUE INDEX alerts_once_while_open ON alerts (dedupe_key) WHERE state <> 'resolved';
CREATE INDEX alerts_by_time ON alerts (opened_at);

-- Hash-chained per customer, in the transaction of the change it describes.
CREATE TABLE audit (
    customer bigint NOT NULL,
    n bigint NOT NULL,
    at bigint NOT NULL,
    action text NOT NULL,
    config_id bigint,
    actor text NOT NULL,
    reason text NOT NULL DEFAULT '',
    old_values text,
    new_values text,
    previous text NOT NULL,
    hash text NOT NULL,
    PRIMARY KEY (customer, n)
);
CREATE INDEX audit_for_config ON audit (config_id, n) WHERE config_id IS NOT NULL;

-- Client requests that may be repeated safely.
CREATE TABLE requests (
    scope text NOT NULL,
    key text NOT NULL,
    body_hash text NOT NULL,
    response text,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX requests_expired ON requests (expires_at);

CREATE TABLE topics (
    topic text NOT NULL PRIMARY KEY,
    created_at bigint NOT NULL
);

CREATE TABLE outbox (
    outbox_id {{id}},
    topic text NOT NULL,
    ordering_key text,
    payload text NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE seals (
    block {{id}},
    from_seq bigint NOT NULL,
    to_seq bigint NOT NULL,
    to_xid text NOT NULL,
    entries bigint NOT NULL,
    root text NOT NULL,
    previous text NOT NULL,
    head text NOT NULL,
    sealed_at bigint NOT NULL
);

-- Sums per hour: every finishing transaction appends its own small delta (no contended row);
-- the pruner folds deltas together.
CREATE TABLE run_sums (
    sum_id {{id}},
    hour_at bigint NOT NULL,
    final_state text NOT NULL,
    runs bigint NOT NULL,
    duration_us bigint NOT NULL,
    sla_breaches bigint NOT NULL
);
CREATE INDEX run_sums_by_hour ON run_sums (hour_at);

-- Closed days per customer, folded from history after midnight UTC.
CREATE TABLE customer_days (
    customer bigint NOT NULL,
    day_at bigint NOT NULL,
    provider text NOT NULL,
    final_state text NOT NULL,
    runs bigint NOT NULL,
    duration_us bigint NOT NULL,
    sla_met bigint NOT NULL,
    PRIMARY KEY (customer, day_at, provider, final_state)
);

-- Finished runs. Written once; partitioned by week of finished_at on PostgreSQL.
CREATE TABLE history (
    run_id {{pg:bigint NOT NULL}}{{lite:integer PRIMARY KEY}},
    customer bigint NOT NULL,
    config_id bigint,
    processor bigint NOT NULL,
    flow_id bigint,
    partition text,
    mode text,
    provider text NOT NULL DEFAULT '',
    slot bigint NOT NULL,
    scheduled_time bigint NOT NULL,
    priority smallint NOT NULL,
    created_at bigint NOT NULL,
    claimed_at bigint,
    claimed_by text,
    started_at bigint,
    finished_at bigint NOT NULL,
    final_state text NOT NULL CHECK (final_state IN ('COMPLETED', 'FAILED', 'TIMEOUT', 'CANCELLED')),
    status text,
    token bigint NOT NULL,
    attempt smallint NOT NULL,
    lapses smallint NOT NULL,
    was_retried boolean NOT NULL,
    is_dead boolean NOT NULL,
    parent_run_id bigint,
    root_run_id bigint,
    records bigint,
    bytes bigint,
    stages text,
    result text,
    error_type text,
    error_details text,
    sla_met boolean,
    sla_breach_us bigint NOT NULL DEFAULT 0,
    cost double precision,
    parameters text,
    ordering_key text,
    correlation_id text,
    trigger_source text NOT NULL,
    trigger_message_id text
) {{pg:PARTITION BY RANGE (finished_at)}};
CREATE INDEX history_for_customer ON history (customer, slot DESC, run_id DESC);
CREATE INDEX history_by_customer_end ON history (customer, finished_at);

-- Every transition and decision, appended in the transaction it describes.
CREATE TABLE journal (
    seq {{pg:bigint NOT NULL DEFAULT nextval('journal_seq')}}{{lite:integer PRIMARY KEY AUTOINCREMENT}},
    xid {{pg:xid8 NOT NULL DEFAULT pg_current_xact_id()}}{{lite:bigint NOT NULL DEFAULT 0}},
    at bigint NOT NULL,
    kind text NOT NULL,
    subject bigint NOT NULL,
    customer bigint,
    action text NOT NULL,
    actor text NOT NULL,
    from_state text,
    to_state text,
    token bigint,
    why text,
    detail text
) {{pg:PARTITION BY RANGE (at)}};
CREATE INDEX journal_for_subject ON journal (subject, kind);

-- only: postgres
CREATE TABLE history_rest PARTITION OF history DEFAULT;
CREATE INDEX history_by_id ON history (run_id);
CREATE INDEX history_by_end ON history USING brin (finished_at);
CREATE TRIGGER history_is_final BEFORE UPDATE ON history
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE journal_rest PARTITION OF journal DEFAULT;
-- Identity values commit out of order: sealing reads by transaction, then by seq.
CREATE INDEX journal_in_order ON journal (xid, seq);
CREATE TRIGGER journal_is_append_only BEFORE UPDATE ON journal
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

SELECT ensure_partitions(db_now(), 4);

ALTER TABLE runs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE schedule SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE sessions SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE counters SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.02);

-- only: sqlite
CREATE INDEX history_by_end ON history (finished_at);
CREATE TRIGGER history_is_final BEFORE UPDATE ON history
BEGIN
    SELECT RAISE(ABORT, 'rows of history never change');
END;
CREATE TRIGGER journal_is_append_only BEFORE UPDATE ON journal
BEGIN
    SELECT RAISE(ABORT, 'rows of journal never change');
END;
