-- Gates of single runs: one row per run that was submitted for a processor with needs.

-- name: run_gate_put_many
-- Open the gates of runs that were just inserted.
-- scope: system (the batch names its customers)
-- batch: run_id bigint, customer bigint, pipeline bigint, phase text, processor text,
--   partition text, mode text, source text, correlation_id text, deadline_at bigint,
--   probe_at bigint
INSERT INTO run_gates (run_id, customer, pipeline, phase, processor, partition, mode, source,
    correlation_id, opened_at, deadline_at, probe_at)
SELECT batch.run_id, batch.customer, batch.pipeline, batch.phase, batch.processor,
    batch.partition, batch.mode, batch.source, batch.correlation_id, {{now}}, batch.deadline_at,
    batch.probe_at
FROM {{batch}} ORDER BY ord;

-- name: run_gate_processors
-- Pipeline, declaration, phase and name of processors.
-- scope: system (names of the installation)
SELECT p.processor, p.pipeline, l.digest, p.phase, p.name
FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline WHERE p.processor {{any ids}};

-- name: run_gate_lease [postgres]
-- Lease due gates; one that is not decided in time becomes due again.
-- scope: system (the orchestrator serves all customers)
WITH taken AS MATERIALIZED (SELECT g.run_id FROM run_gates g WHERE g.probe_at <= {{now}}
    ORDER BY g.probe_at, g.run_id LIMIT :n FOR UPDATE SKIP LOCKED)
UPDATE run_gates SET token = token + 1, probe_at = {{now}} + :lease_us
WHERE run_id IN (SELECT run_id FROM taken) RETURNING run_id;

-- name: run_gate_lease [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (the orchestrator serves all customers)
UPDATE run_gates SET token = token + 1, probe_at = {{now}} + :lease_us
WHERE run_id IN (SELECT g.run_id FROM run_gates g WHERE g.probe_at <= {{now}}
    ORDER BY g.probe_at, g.run_id LIMIT :n)
RETURNING run_id;

-- fragment: run_gate_columns
g.run_id, g.token, g.customer, c.customer_id, g.pipeline, l.name, l.digest, g.phase, g.processor,
g.partition, g.mode, g.source, g.correlation_id, g.opened_at, g.deadline_at, g.waiting_since,
g.tries, g.verdict, g.status, g.reason, g.probe_at, r.ordering_key, r.trigger_message_id,
coalesce(r.parameters, f.parameters)

-- fragment: run_gate_joins
JOIN runs r ON r.run_id = g.run_id AND r.admission = 5
JOIN customers c ON c.customer = g.customer JOIN pipelines l ON l.pipeline = g.pipeline
LEFT JOIN configs f ON f.config_id = r.config_id

-- name: run_gate_rows [postgres]
-- Lock gates, and the runs that wait for them; a run that has ended is not returned.
-- scope: system (the orchestrator serves all customers)
SELECT {{run_gate_columns}} FROM run_gates g {{run_gate_joins}}
WHERE g.run_id {{any ids}} ORDER BY g.run_id FOR UPDATE OF g, r;

-- name: run_gate_rows [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (the orchestrator serves all customers)
SELECT {{run_gate_columns}} FROM run_gates g {{run_gate_joins}}
WHERE g.run_id {{any ids}} ORDER BY g.run_id;

-- name: run_gate_get
-- The gate of one run that waits for it.
-- scope: system (the caller may see the run)
SELECT {{run_gate_columns}} FROM run_gates g {{run_gate_joins}} WHERE g.run_id = :run_id;

-- name: run_gate_decide_many
-- Store decisions of gates. A gate without `probe_at` is closed.
-- scope: system (the orchestrator locked the gates)
-- batch: run_id bigint, probe_at bigint, waiting_since bigint, tries bigint, verdict text,
--   status text, reason text, context text
UPDATE run_gates SET probe_at = batch.probe_at, waiting_since = batch.waiting_since,
    tries = batch.tries, verdict = batch.verdict, status = batch.status, reason = batch.reason,
    context = batch.context, token = run_gates.token + 1
FROM {{batch}} WHERE run_gates.run_id = batch.run_id;

-- name: run_gate_drop_many
-- Runs that ended while they waited, such as cancelled ones, need no decision.
-- scope: system (the orchestrator serves all customers)
UPDATE run_gates SET probe_at = NULL WHERE run_id {{any ids}};

-- name: run_gate_ask_again
-- Evaluate the gates of a partition again, or the gate of one run: a person has acted.
-- scope: system (the caller has looked up the customer)
UPDATE run_gates SET probe_at = {{now}}
WHERE probe_at IS NOT NULL AND customer = :customer
    AND (CAST(:run_id AS bigint) IS NULL OR run_id = :run_id)
    AND (CAST(:pipeline AS bigint) IS NULL OR (pipeline = :pipeline AND partition = :partition));

-- name: run_gate_overrides
-- Overrides in force for the partitions of runs.
-- scope: system (the orchestrator serves all customers)
SELECT g.run_id, {{override_columns}}
FROM run_gates g {{lite:CROSS}} JOIN overrides o ON o.customer = g.customer
    AND o.pipeline = g.pipeline AND o.partition = g.partition
JOIN customers c ON c.customer = o.customer JOIN pipelines l ON l.pipeline = o.pipeline
WHERE g.run_id {{any ids}} AND o.revoked_at IS NULL AND o.expires_at > {{now}}
ORDER BY o.override_id;

-- name: run_gates_prune
-- Delete old gates that have decided, in chunks.
-- scope: system (retention)
DELETE FROM run_gates WHERE run_id IN (
    SELECT g.run_id FROM run_gates g WHERE g.opened_at < :before AND g.probe_at IS NULL
    ORDER BY g.opened_at LIMIT :n);
