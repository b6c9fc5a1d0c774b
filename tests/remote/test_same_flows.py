"""The local and the remote client return the same records of flows, gates and explanations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.core.clock import to_datetime
from penstock.core.errors import ApiError, Conflict, IllegalTransition, InvalidInput, NotFound
from penstock.flows.breakers.records import BreakerTarget
from penstock.flows.cascade import FlowState
from penstock.flows.client.requests import ProcessorReport
from penstock.flows.gates.records import (
    BacktestRequest,
    ModeChanges,
    OverrideRequest,
    WhatIfRequest,
)
from penstock.flows.gates.verdict import Verdict
from penstock.flows.items.records import ItemRetry
from penstock.flows.records import (
    Completeness,
    CompletionReport,
    DependencyCheck,
    FlowRequest,
)
from penstock.recovery.records import BackfillRequest, CancelRequest, ConfigEdit, FlowReplay
from penstock.remote.client import RemoteClient
from penstock.schedules.records import ConfigChange
from penstock.slos.recorder import SloRecorder
from penstock.usage.records import NewBudget
from tests.remote.test_same_records import remote, same
from tests.server.flow_scene import PAST, TODAY, flow_things
from tests.server.kit import ServedApi

__all__ = ["remote"]

CHANGES = ModeChanges(min_quality=0.5)


def wanted(**more: Any) -> FlowRequest:
    """Return a request for a flow of acme."""
    given = {"pipeline": "daily", "customer": "acme", "partition": "p", "mode": "same_day", **more}
    return FlowRequest(**given)


class TestBackfills:
    """Backfills."""

    def test_backfills(self, served: ServedApi, remote: RemoteClient) -> None:
        """Previews, lists, details and changes are equal."""
        things = flow_things(served.harness, "acme")
        request = BackfillRequest(
            pipeline="daily", customer="acme", partitions=["a", "b"], is_dry_run=True
        )
        same(served, remote, "backfills", "start", request)
        same(served, remote, "backfills", "get", things.backfill)
        same(served, remote, "backfills", "partitions", things.backfill)
        same(served, remote, "backfills", "list", customer="acme", limit=1)
        assert remote.backfills.pause(things.backfill, "busy").note == "busy"
        assert remote.backfills.resume(things.backfill, parallelism=2).parallelism == 2
        assert remote.backfills.cancel(things.backfill).counts == {"CANCELLED": 1}


class TestRecovery:
    """Replays, cancelling by filter, slow processors, approvals."""

    def test_recovery(self, served: ServedApi, remote: RemoteClient) -> None:
        """Previews and reads are equal; actions return their records."""
        things = flow_things(served.harness, "acme")
        wanted = {"pipeline": "daily", "customer": "acme", "partition": TODAY, "force": True}
        preview = FlowReplay(**wanted, phase="analytics", is_dry_run=True)  # type: ignore[arg-type]
        same(served, remote, "recovery", "replay", preview)
        same(served, remote, "recovery", "cancel", CancelRequest(customer="acme", is_dry_run=True))
        same(served, remote, "recovery", "slowest", pipeline="daily")
        served.harness.config("acme")
        edit = ConfigEdit(customer="acme", change=ConfigChange(priority=9), is_dry_run=True)
        same(served, remote, "recovery", "edit_configs", edit)
        at = datetime(2025, 11, 18, tzinfo=UTC)
        same(served, remote, "configs", "due", at, at + timedelta(days=1), limit=1)
        made = remote.recovery.replay(FlowReplay(**wanted, phase="analytics"))  # type: ignore[arg-type]
        assert made.flow is not None
        assert made.flow.generation == 2
        assert remote.interventions.approve(things.intervention, "known").partition == PAST
        assert remote.recovery.cancel(CancelRequest(customer="acme")).left == 0


class TestFlows:
    """Flows, their previews and their explanations."""

    def test_reads(self, served: ServedApi, remote: RemoteClient) -> None:
        """Lists, pages and details are equal."""
        things = flow_things(served.harness, "acme")
        flow_things(served.harness, "globex")
        detail = remote.flows.get(things.blocked)
        assert (detail.flow.flow_id, detail.flow.state) == (things.blocked, FlowState.OPEN)
        assert isinstance(detail.flow.created_at, datetime)
        assert detail.decisions[0].verdict is Verdict.FAIL
        for flow in (things.blocked, things.flow):
            same(served, remote, "flows", "get", flow)
        which = {"customer": "acme", "pipeline": "daily", "partition": TODAY, "mode": "same_day"}
        same(served, remote, "flows", "list", **which, state="OPEN")
        first = remote.flows.list(customer="acme", limit=2)
        assert len(first.items) == 2
        more = {"customer": "acme", "limit": 2, "cursor": first.next_cursor}
        same(served, remote, "flows", "list", **more)
        for client in (remote, served.harness.client):
            with pytest.raises(InvalidInput, match="cursor"):
                client.flows.list(customer="globex", cursor=first.next_cursor)

    def test_items(self, served: ServedApi, remote: RemoteClient) -> None:
        """Items of a flow are counted, listed and retried alike; here it has none."""
        things = flow_things(served.harness, "acme")
        same(served, remote, "items", "summary", things.flow)
        same(served, remote, "items", "list", things.flow, state="failed", limit=5)
        assert remote.items.retry(things.flow, ItemRetry(match="a*")).items == []
        for client in (remote, served.harness.client):
            with pytest.raises(InvalidInput, match="processor"):
                client.items.retry(things.flow, ItemRetry(processor="box"))

    def test_trigger(self, served: ServedApi, remote: RemoteClient) -> None:
        """A preview is equal; a trigger opens a flow once, and force the next generation."""
        flow_things(served.harness, "acme")
        same(served, remote, "previews", "trigger", wanted())
        opened = remote.flows.trigger(wanted(priority=7, parameters={"a": 1}, phases=[]))
        assert (opened.is_new, opened.flow.generation, len(opened.run_ids)) == (True, 1, 1)
        assert opened.flow.opened_by == "key:admin"
        again = remote.flows.trigger(wanted())
        assert (again.is_new, again.flow.flow_id) == (False, opened.flow.flow_id)
        assert remote.flows.trigger(wanted(force=True)).flow.generation == 2
        same(served, remote, "previews", "trigger", wanted(phases=["analytics"]))

    def test_cancel(self, served: ServedApi, remote: RemoteClient) -> None:
        """A flow is cancelled once."""
        things = flow_things(served.harness, "acme")
        done = remote.flows.cancel(things.spare, "enough")
        assert (done.flow_id, done.runs) == (things.spare, 1)
        for client in (remote, served.harness.client):
            with pytest.raises(IllegalTransition, match="CANCELLED"):
                client.flows.cancel(things.spare)

    def test_complete(self, served: ServedApi, remote: RemoteClient) -> None:
        """A report is taken, known, or a dead letter; what it says is stored with the flow."""
        things = flow_things(served.harness, "acme")
        given: dict[str, Any] = {
            "pipeline": "daily", "customer": "acme", "mode": "same_day", "execution_id": "e1",
        }  # fmt: skip
        report = CompletionReport(
            **given,
            processor="box",
            game_date=TODAY,
            completeness=Completeness(total_processed=7, quality_score=0.75),
            dependency_checks=[DependencyCheck(table="t", found_rows=3)],
            entities={"players": [7, "x"]},
        )
        taken = remote.flows.complete(report)
        assert (taken.outcome, taken.flow_id) == ("taken", things.flow)
        assert served.harness.client.flows.complete(report).outcome == "known"
        (seen,) = remote.flows.get(things.flow).completions
        assert (seen.records, seen.quality, seen.entities) == (7, 0.75, {"players": [7, "x"]})
        lost = remote.flows.complete(CompletionReport(**given, processor="none", partition="p"))
        assert (lost.outcome, lost.flow_id) == ("dead", None)
        for client in (remote, served.harness.client):
            with pytest.raises(InvalidInput, match="partition: expected"):
                client.flows.complete(CompletionReport(**given, processor="box"))
        with pytest.raises(ApiError, match=r"Flows\.record is not part of the API"):
            remote.flows.record(ProcessorReport(pipeline="daily", processor="b", partition="p"))

    def test_explanations(self, served: ServedApi, remote: RemoteClient) -> None:
        """Explanations, causes and traces are equal."""
        things = flow_things(served.harness, "acme")
        same(served, remote, "diagnostics", "explain", "daily", TODAY, customer="acme")
        same(served, remote, "diagnostics", "explain", "daily", "1999-01-01")
        found = remote.diagnostics.explain("daily", PAST, customer="acme", mode="backfill")
        assert found.flow is not None
        assert found.flow.flow_id == things.blocked
        same(served, remote, "diagnostics", "explain_flow", things.blocked)
        same(served, remote, "diagnostics", "why_flow", things.blocked)
        same(served, remote, "diagnostics", "why_flow", things.blocked, "analytics")
        same(served, remote, "diagnostics", "why_run", things.run)
        same(served, remote, "diagnostics", "trace", things.correlation)
        same(served, remote, "diagnostics", "why_customer", "acme")
        same(served, remote, "tracking", "executions", things.correlation, limit=2)
        same(served, remote, "tracking", "find", things.flow[5:], customer="acme")
        same(served, remote, "diagnostics", "entity", "players:7", customer="acme")

    def test_errors(self, served: ServedApi, remote: RemoteClient) -> None:
        """Errors have the class, the field and the message of the local client."""
        flow_things(served.harness, "acme")
        for client in (remote, served.harness.client):
            for call in (client.flows.get, client.diagnostics.why_flow, client.flows.cancel):
                for unknown in ("flow_00000000", "nonsense"):
                    with pytest.raises(NotFound, match=f"There is no flow {unknown}"):
                        call(unknown)
            with pytest.raises(InvalidInput, match=r"^pipeline: expected .*Did you mean 'daily'"):
                client.flows.trigger(wanted(pipeline="dayly"))
            with pytest.raises(InvalidInput, match=r"^priority: expected") as error:
                client.previews.trigger(wanted(priority=11))
            assert error.value.field == "priority"
            with pytest.raises(InvalidInput, match=r"^phase: expected"):
                client.diagnostics.why_flow(client.flows.list().items[0].flow_id, "nowhere")


class TestGates:
    """Gates, overrides and interventions."""

    def test_reads(self, served: ServedApi, remote: RemoteClient) -> None:
        """Checks, decisions and their evaluation under other settings are equal."""
        things = flow_things(served.harness, "acme")
        checked = remote.gates.check("daily", "analytics", flow_id=things.blocked, customer="acme")
        assert (checked.verdict, checked.flow_id) == (Verdict.FAIL, things.blocked)
        assert [one.table for one in checked.dependencies] == ["an.days"]
        about = {"partition": PAST, "mode": "backfill", "customer": "acme"}
        same(served, remote, "gates", "check", "daily", "analytics", **about)
        same(served, remote, "gates", "decisions", "daily", customer="acme", phase="analytics")
        first = remote.gates.decisions("daily", limit=1)
        assert first.next_cursor is not None
        same(served, remote, "gates", "decisions", "daily", limit=1, cursor=first.next_cursor)
        what_if = WhatIfRequest(pipeline="daily", changes=CHANGES, flow_id=things.blocked)
        assert len(remote.gates.what_if(what_if).items) == 1
        same(served, remote, "gates", "what_if", what_if)
        same(
            served, remote, "gates", "backtest", BacktestRequest(pipeline="daily", changes=CHANGES)
        )
        asked = remote.gates.recheck("daily", partition=PAST, phase="analytics", customer="acme")
        assert asked.flow_ids == [things.blocked]
        same(served, remote, "gates", "recheck", "daily", flow_id=things.blocked)
        for client in (remote, served.harness.client):
            with pytest.raises(InvalidInput, match=r"^changes: expected at least one setting"):
                client.gates.what_if(WhatIfRequest(pipeline="daily", changes=ModeChanges()))

    def test_detections(self, served: ServedApi, remote: RemoteClient) -> None:
        """Detections, the risk of a flow and freshness are equal."""
        things = flow_things(served.harness, "acme")
        served.harness.clock.advance(seconds=3 * 3600)
        assert {one.rule for one in remote.detections.list().items} >= {"phase_stuck"}
        same(served, remote, "detections", "list", customer="acme", rule="phase_stuck")
        first = remote.detections.list(limit=1)
        same(served, remote, "detections", "list", limit=1, cursor=first.next_cursor)
        same(served, remote, "detections", "risk", things.flow)
        same(served, remote, "detections", "freshness")
        same(served, remote, "flows", "list", risk=True)
        SloRecorder(served.harness.store).run_once()
        same(served, remote, "slos", "list", customer="acme", limit=3)
        assert remote.slos.list().items
        same(served, remote, "slos", "breaches", limit=2)
        remote.budgets.set(NewBudget(scope="customer", subject="acme", amount=5))
        same(served, remote, "budgets", "list")
        same(served, remote, "anomalies", "list", only_open=True)
        same(served, remote, "pools", "list")
        same(served, remote, "pools", "desired_workers", "default")

    def test_analytics(self, served: ServedApi, remote: RemoteClient) -> None:
        """Figures over what ended are equal."""
        flow_things(served.harness, "acme")
        assert remote.analytics.dependency_health().kinds
        for name in ("dependency_health", "trends", "validation_failures", "overrides"):
            same(served, remote, "analytics", name, customer="acme", days=7)
        same(served, remote, "analytics", "run_series", bucket="1h")
        same(served, remote, "analytics", "acknowledgments", hours=3)
        same(served, remote, "analytics", "end_to_end", pipeline="daily")
        same(served, remote, "audit_sinks", "status", "parquet:x")
        same(served, remote, "reviews", "health", customer="acme")
        same(served, remote, "reviews", "weekly", days=7)

    def test_breakers(self, served: ServedApi, remote: RemoteClient) -> None:
        """Breakers are listed, explained and reset once."""
        flow_things(served.harness, "acme")
        assert len(remote.breakers.list(state="all").items) == 2
        same(served, remote, "breakers", "list", state="all", customer="acme", phase="analytics")
        same(served, remote, "breakers", "get", "daily", PAST, "analytics", customer="acme")
        target = BreakerTarget(
            pipeline="daily", partition=PAST, phase="analytics", customer="acme", reason="fixed"
        )
        assert remote.dry_run().breakers.reset(target).breaker.failures == 1
        assert remote.breakers.reset(target).breaker.failures == 1
        for client in (remote, served.harness.client):
            with pytest.raises(NotFound, match="breaker with failures"):
                client.breakers.reset(target)

    def test_overrides(self, served: ServedApi, remote: RemoteClient) -> None:
        """An override is granted until a time or for a duration, and revoked once."""
        flow_things(served.harness, "acme")
        about: dict[str, Any] = {
            "pipeline": "daily", "partition": "p", "customer": "acme", "reason": "known",
        }  # fmt: skip
        until = to_datetime(served.harness.clock.now()) + timedelta(hours=2)
        granted = remote.overrides.grant(OverrideRequest(**about, expires_at=until), source="cli")
        assert (granted.expires_at, granted.approved_by, granted.source) == (
            until, "key:admin", "api",
        )  # fmt: skip
        lasting = remote.overrides.grant(OverrideRequest(**about, expires="1h"))
        assert lasting.expires_at - lasting.approved_at == timedelta(hours=1)
        same(served, remote, "overrides", "list", live=True, partition="p", pipeline="daily")
        assert remote.overrides.revoke(granted.override_id, "it came") is None  # type: ignore[func-returns-value]
        same(served, remote, "overrides", "list", customer="acme")
        for client in (remote, served.harness.client):
            with pytest.raises(Conflict, match="is not active"):
                client.overrides.revoke(granted.override_id)
            with pytest.raises(InvalidInput, match=r"^expires: expected either"):
                client.overrides.grant(OverrideRequest(**about))

    def test_interventions(self, served: ServedApi, remote: RemoteClient) -> None:
        """Interventions are listed, shown and resolved once."""
        things = flow_things(served.harness, "acme")
        same(served, remote, "interventions", "list")
        same(served, remote, "interventions", "get", things.intervention)
        same(served, remote, "recovery", "approval_impact", things.intervention)
        remote.interventions.resolve(things.intervention, "loaded")
        resolved = remote.interventions.get(things.intervention)
        assert (resolved.status, resolved.resolved_by) == ("resolved", "key:admin")
        left = [one.intervention_id for one in remote.interventions.list().items]
        assert left == [things.approvable]
        same(served, remote, "interventions", "list", status="all", customer="acme")
        for client in (remote, served.harness.client):
            with pytest.raises(Conflict, match="is not open"):
                client.interventions.resolve(things.intervention, "again")
            with pytest.raises(NotFound, match="There is no intervention nonsense"):
                client.interventions.get("nonsense")
