"""Two customers with a row in every table that can hold one, on stores of three kinds.

`sqlite` has only the client's filters; `postgres` connects as a superuser; `plain` as an ordinary
user that owns the database, which is how a service should run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import pytest

from penstock.access.store.registry import processor_list
from penstock.alerts.records import NewSilence
from penstock.client import Client
from penstock.core.clock import HOUR, to_datetime
from penstock.core.ids import decode, encode
from penstock.core.naming import CustomerKey, ProcessorKey
from penstock.db.postgres.store import PostgresStore
from penstock.db.store import Store, Tx
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.recovery.records import BackfillRequest
from penstock.runs.external.client.holder import Claimed, ExternalWorker, FailureReport
from penstock.runs.records import Submission
from penstock.runs.rows import HeldRun
from penstock.runs.store.actions import (
    ActionRow,
    ArtifactRow,
    StateRow,
    action_add_many,
    artifact_put_many,
    state_put_ended,
)
from penstock.runs.store.logs import LogPart, run_log_put_ended
from penstock.runs.store.runs import Claim, run_claim
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.server import DatabaseServer
from tests.kits.client_harness import Harness, gated
from tests.kits.configs import cfg, change_of, start
from tests.kits.databases import Admin, Databases

PASSWORD = "only-for-tests"


class Things(NamedTuple):
    """The objects of a customer."""

    customer_id: str
    number: int
    config_id: int
    waiting: int
    held: Claimed
    ended: int
    dead: int
    dead_letter: int = 10**9
    flow: int = 10**9
    override: int = 10**9
    item: int = 10**9
    message: int = 10**9
    backfill: int = 10**9
    alert: int = 10**9
    silence: int = 10**9


MEASURED_ROWS = (
    "INSERT INTO run_counts VALUES ({n}, {at}, 1, 1, 0, 0, 0, 0, 0, 1)",
    "INSERT INTO failure_counts VALUES ({n}, {at}, 1, 'TIMEOUT', '', 1, {at}, 0)",
    "INSERT INTO duration_counts VALUES ({n}, 'run', {at}, 1, '', 1, 1)",
    "INSERT INTO slow_runs VALUES ({n}, {n}, 1, {at}, 1)",
    "INSERT INTO check_counts VALUES ({n}, {at}, 1, 'p', '', 't', 'k', 1, 0, 0, 0, 0)",
    "INSERT INTO table_counts VALUES ({n}, {at}, 1, 't', 1, 100)",
    "INSERT INTO phase_counts VALUES ({n}, {at}, 1, 'p', 'm', 1, 1, 1, 1, 0, 0, 1)",
    "INSERT INTO flow_counts VALUES ({n}, {at}, 1, 'm', 'COMPLETE', 1, 1, 1)",
    "INSERT INTO usage_days VALUES (1, {n}, {at}, 1, 1, 1, 1)",
    "INSERT INTO budgets VALUES ('customer', {n}, 'month', 1, 80, FALSE, NULL, NULL, {at}, 'a')",
    "INSERT INTO processor_profiles VALUES (1, {n}, '', '[]', {at})",
    "INSERT INTO anomalies (processor, customer, mode, measure, run_id, value, high, "
    "median, samples, at) VALUES (1, {n}, '', 'duration', {k}, 9, 5, 1, 20, {at})",
    "INSERT INTO slo_targets VALUES (1, 'm', '', 'latency', {n}, 1, 95, {at}), "
    "(1, 'm', '', 'latency', 0, 1, 95, {at}) ON CONFLICT DO NOTHING",
    "INSERT INTO slo_hours VALUES (1, {n}, {at}, 'm', '', 'latency', 1, 1)",
    "INSERT INTO slo_results (customer, pipeline, mode, phase, partition, flow_id, "
    "correlation_id, began_at, due_at, ended_at, outcome, is_degraded, state, at) VALUES "
    "({n}, 1, 'm', '', 'p', {k}, 'c', {at} - 9, {at} - 5, {at} - 1, 'missed', FALSE, "
    "'COMPLETE', {at} - 1)",
)
"""Rows of analytics, service levels and usage."""


class Tenants:
    """A harness with the customers acme and bravo, which have equal data."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.harness = Harness(store, clock)
        self.store = store
        self.clock = clock
        self.client = self.harness.client
        self.client.register([gated()])
        self.acme = self._settle("acme")
        self.bravo = self._settle("bravo")

    def scoped(self, things: Things) -> Client:
        """Return a client restricted to one of them."""
        return self.client.scoped(things.customer_id, actor="bound")

    def _settle(self, who: str) -> Things:
        """Give a customer a config, a pause, and a waiting, a held, an ended and a dead run."""
        worker = ExternalWorker(f"w-{who}", "k")
        config = self.harness.config(who)
        self.clock.advance(2 * HOUR)
        self.client.configs.update(cfg(config), change_of({"schedule_cron": "5 * * * *"}))
        number = config.customer_key
        self.client.customers.set(who, weight=2)
        scoped = self.client.scoped(who)
        wanted = [Submission(pipeline="outside", ordering_key=f"k{n}") for n in range(3)]
        ended, dead, held = (
            decode("run", scoped.runs.submit(one, key=f"key-{n}").run_id)
            for n, one in enumerate(wanted)
        )
        self.client.work.claim_by_id(worker, ended)
        self.client.work.start(ended, worker)
        self.client.work.complete(ended, worker)
        logged = LogPart(ended, 1, 0, number, f'[[0, "INFO", "l", "of {who}"]]')
        self.store.write(lambda tx: run_log_put_ended(tx, [logged]))
        self.store.write(lambda tx: _act(tx, ended, number, who))
        self.client.work.claim_by_id(worker, dead)
        self.client.work.start(dead, worker)
        for _ in range(3):
            start(scoped, config, trigger_source="scheduler")
            self.harness.fail(self.harness.take())
        self.client.work.fail(dead, worker, FailureReport(error_type="VALIDATION_ERROR"))
        claimed = self.client.work.claim_by_id(worker, held)
        self.client.work.start(held, worker)
        flow = self._flow(who)
        waiting = decode("run", scoped.runs.submit(Submission(pipeline="nightly")).run_id)
        self._rows(number, waiting)
        self.client.pauses.pause("config", cfg(config))
        found = self.client.dead_letters.get(encode("run", dead)).dead_letter
        ids = (waiting, claimed, ended, dead, decode("dl", found.dead_letter_id))
        own = f"SELECT max(message_id) FROM messages WHERE customer = {number}"
        (message,) = self.harness.column(own)
        backfill = self._backfill(scoped)
        (alert,) = self.harness.column(
            f"SELECT max(alert_id) FROM alerts WHERE customer = {number}"
        )
        silence = scoped.alerts.silence(
            NewSilence(rule="none", duration=timedelta(days=1), reason=f"of {who}")
        )
        made = (message, backfill, alert, decode("sil", silence.silence_id))
        return Things(who, number, config.config_id, *ids, *flow, *made)

    def _backfill(self, scoped: Client) -> int:
        """Create a backfill that no service executes."""
        wanted = BackfillRequest(pipeline="gated", partitions=["q"], mode="manual")
        made = scoped.backfills.start(wanted).backfill
        assert made is not None
        return decode("bf", made.backfill_id)

    def _flow(self, who: str) -> tuple[int, int, int]:
        """Create a flow with completion, decisions, checks, override, intervention and breaker.

        Returns the ids of the flow, the override and the intervention.
        """
        scoped = self.client.scoped(who, actor=f"person of {who}")
        opened = scoped.flows.trigger(FlowRequest(pipeline="gated", partition="p", mode="manual"))
        granted = scoped.overrides.grant(
            OverrideRequest(
                pipeline="gated", partition="p", reason="a test", dependency="t.rows",
                expires_at=to_datetime(self.clock.now() + HOUR),
            )
        )  # fmt: skip
        report = CompletionReport(
            pipeline="gated", processor="far", partition="p", mode="manual",
            entities={"players": [7]},
        )  # fmt: skip
        scoped.flows.complete(report)

        def observe(request: ProbeRequest) -> list[Observation]:
            return [
                Observation(key=d.key, looked_at=self.clock.now(), rows=1, days_present=0)
                for d in request.dependencies
            ]

        Orchestrator(self.store, observe).run_once()
        scoped.flows.trigger(FlowRequest(pipeline="pair", partition="p", mode="manual"))
        self.harness.complete(*self._claim("pair"))
        (item,) = scoped.interventions.list().items
        return (
            decode("flow", opened.flow.flow_id),
            decode("ovr", granted.override_id),
            decode("int", item.intervention_id),
        )

    def _rows(self, number: int, run_id: int) -> None:
        """Insert a row into every table that no use case above fills."""
        at = self.clock.now()
        for text in (
            *MEASURED_ROWS,
            "INSERT INTO topics (topic, customer, name, created_at) VALUES ({k}, {n}, 't', {at})",
            "INSERT INTO completion_ids (customer, processor, execution_id, partition, mode, "
            "flow_id, at) VALUES ({n}, 1, 'e', 'p', 'm', 1, {at})",
            "INSERT INTO subscriptions (subscription, customer, topic, name, kind, created_at) "
            "VALUES ({k}, {n}, {k}, 's', 'pull', {at})",
            "INSERT INTO messages (topic, customer, data, published_at, expires_at) "
            "VALUES ({k}, {n}, 'x', {at}, {at})",
            "INSERT INTO publish_marks VALUES ({k}, 'd', {n}, 'h', {k}, {at})",
            "INSERT INTO deliveries (subscription, message_id, customer, published_at, state, "
            "due_at, born_at) VALUES ({k}, {k}, {n}, {at}, 0, {at}, {at})",
            "INSERT INTO settled VALUES "
            "({k}, {k}, {n}, 1, 1, 1, 0, 'acked', {at}, {at}, {at}, 'h', {at}, 's', 'r', NULL, 1)",
            "INSERT INTO past_alerts (alert_id, customer, subject_kind, subject, rule, opened_at, "
            "last_at) VALUES ({k}, {n}, 'run', {k}, 'r', {at}, {at})",
            "INSERT INTO snapshots (customer, name, topic, subscription, taken_at, oldest_at, "
            "expires_at) VALUES ({n}, 'monday', {k}, {k}, {at}, {at}, {at} + 2592000000000)",
            "INSERT INTO schema_revisions VALUES ({k}, {n}, 'roster', 'r', 'avro', 'x', {at}, 'x')",
            "INSERT INTO delivery_failures (subscription, message_id, customer, round, attempt, "
            "action, error_type, error, at) VALUES ({k}, {k}, {n}, 1, 1, 'nack', 'E', 'e', {at})",
            "INSERT INTO delivery_sums (subscription, customer, hour_at) VALUES ({k}, {n}, {at})",
            "INSERT INTO limits (limit_id, customer, name, created_at, updated_at) "
            "VALUES ({k}, {n}, 'l', {at}, {at})",
            "INSERT INTO limit_leases (limit_id, customer, token, holder, request, asked_at, "
            "since_at) VALUES ({k}, {n}, 1, 'h', 'r', {at}, {at})",
            "INSERT INTO limit_tickets (limit_id, customer, broker, holder, request, lease_us, "
            "asked_at, until_at) VALUES ({k}, {n}, 'b', 'h', 'r2', 1, {at}, {at})",
            "INSERT INTO run_limits (run_id, limit_id, customer, level, pass, is_waiting, "
            "lined_at) VALUES ({run}, {k}, {n}, 5, 1, TRUE, {at})",
            "INSERT INTO quota_retries VALUES ({run}, 'q:1', {n}, 1, {at})",
            "INSERT INTO entity_epochs (customer, pipeline, config_id, epoch) "
            "VALUES ({n}, 1, 0, 1)",
            "INSERT INTO entity_watermarks VALUES ({n}, 1, 0, 1, '', 1, 's', 1, {at})",
            "INSERT INTO entity_inputs VALUES ({k}, 1, {n}, 1, 0, '', 1, 's', '[]', '[]', NULL, "
            "TRUE, {at}, NULL)",
            "INSERT INTO execution_hours VALUES (1, {n}, {at}, 1, '[1]')",
            "INSERT INTO dependency_check_log (check_time, customer, pipeline, flow_id, phase, "
            "partition, mode, required_table, kind, completeness_pct, quality_score, check_status, "
            "issues, contributed_to_decision, correlation_id) VALUES ({at} - 7200000000, {n}, 1, "
            "{k}, 'f', 'p', 'm', 't.never', 'same_day', 0, 0, 'MISSING', '[]', 'WAIT', 'c')",
            "INSERT INTO push_emails VALUES ('{k}@example.com', {n}, {at})",
            "INSERT INTO run_gates (run_id, customer, pipeline, phase, processor, partition, mode, "
            "source, opened_at, deadline_at) VALUES ({k}, {n}, 1, 'f', 'p', 'd', 'm', 's', {at}, "
            "{at})",
            "INSERT INTO expansions (flow_id, processor, customer, phase, name, state, source, "
            "is_entry, started_at) VALUES ({k}, 1, {n}, 'f', 'p', 'SEALED', 's', TRUE, {at})",
            "INSERT INTO expansion_items VALUES ({k}, 1, 0, {n}, '[]')",
            "INSERT INTO item_completions VALUES "
            "({k}, 1, 'i', {n}, 'failed', {at}, {k}, NULL, NULL)",
            "INSERT INTO item_counts (flow_id, processor, customer, succeeded, partial, failed, "
            "records) VALUES ({k}, 1, {n}, 1, 0, 0, 0)",
            "INSERT INTO limit_history (limit_id, customer, holder, weight, outcome, at) "
            "VALUES ({k}, {n}, 'h', 1, 'released', {at})",
            "INSERT INTO limit_capacities (limit_id, customer, capacity, before, cause, at) "
            "VALUES ({k}, {n}, 1, 2, 'quota', {at})",
        ):
            self.harness.sql(text.format(n=number, k=number + 100, at=at, run=run_id))

    def _claim(self, pipeline: str) -> list[HeldRun]:
        """Claim the ready runs of one pipeline only."""
        rows = [r for r in self.store.read(processor_list) if r.pipeline == pipeline]
        claim = Claim(
            pool_key=rows[0].pool_key,
            processors=[row.processor_key for row in rows],
            n=10,
            claimed_by="tester",
            start=True,
        )
        return self.store.write(lambda tx: run_claim(tx, claim))


def plain_user(admin: Admin, suffix: str) -> str:
    """Create an ordinary user that can only log in. Return its name."""
    name = f"penstock_test_{suffix}_{os.getpid()}"
    admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    return name


def dsn_as(dsn: str, user: str) -> str:
    """Return the URL for another user."""
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{user}:{PASSWORD}@{parts.hostname}:{parts.port}"))


@pytest.fixture(scope="session")
def pg_plain(
    pg_server: DatabaseServer, pg_admin: Admin, pg_template: str
) -> Iterator[tuple[str, Databases]]:
    """Return (user, databases) of an ordinary user with the tenant role."""
    assert pg_template, "its migration made the role"
    user, template = plain_user(pg_admin, "plain"), f"penstock_plain_{os.getpid()}"
    set_too = " WITH INHERIT FALSE, SET TRUE" if pg_admin.server_version >= 160_000 else ""
    pg_admin.execute(f"GRANT penstock_tenant TO {user}{set_too}")
    pg_admin.execute(f"CREATE DATABASE {template} TEMPLATE template0 OWNER {user}")
    store = PostgresStore(dsn_as(pg_server.dsn(template), user))
    store.migrate()
    store.close()
    databases = Databases(pg_server, pg_admin, template, owner=user)
    yield user, databases
    databases.close()
    pg_admin.execute(f"DROP DATABASE {template} WITH (FORCE)")
    pg_admin.execute(f"DROP ROLE {user}")


@pytest.fixture
def pg_plain_dsn(pg_server: DatabaseServer, pg_plain: tuple[str, Databases]) -> Iterator[str]:
    """Return the URL of a migrated database that an ordinary user owns."""
    user, databases = pg_plain
    with databases.lent() as name:
        yield dsn_as(pg_server.dsn(name), user)


def _act(tx: Tx, run_id: int, customer: CustomerKey, who: str) -> None:
    """Give an ended run an action, an artifact and a checkpoint."""
    action = ActionRow(run_id, 0, customer, ProcessorKey(1), "publish", f"of {who}", None, None, 1)
    action_add_many(tx, [action])
    artifact_put_many(tx, [ArtifactRow(run_id, "a", customer, f"of {who}", 1, None, None)])
    wait = {"run_id": run_id, "wait_key": "w", "root": run_id, "customer": customer, "flow_id": 1}
    tx.run("sub_flow_put", {**wait, "parent_flow_id": None, "is_opened": True, "is_ended": True})
    state_put_ended(tx, [StateRow(run_id, customer, run_id, 1, f'{{"of": "{who}"}}')])
