"""Flows on both engines: opening, completions, flow events, probes, overrides, reports."""

from __future__ import annotations

import pytest

from penstock.core.clock import DAY as DAY_US
from penstock.core.clock import HOUR, to_datetime
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.gates.store.gates import probe_lease_many, probe_release_many
from penstock.flows.records import Completeness, CompletionReport
from penstock.flows.rows import NewCompletion
from penstock.flows.store.completions import completion_put_many, completions_of, flow_event_take
from penstock.flows.store.flows import flow_get, phases_of
from penstock.services.store import Retention, prune
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, chain


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """Two phases of one processor each."""
    return Stage(store, clock, chain("raw", "analytics"))


def report(**fields: object) -> CompletionReport:
    """Build a report of the external `raw_job`."""
    given = {"pipeline": "nba", "processor": "raw_job", "partition": DAY, "customer": "acme",
             "mode": "same_day", **fields}  # fmt: skip
    return CompletionReport(**given)  # type: ignore[arg-type]


def test_completions_only_improve(stage: Stage) -> None:
    """A report is recorded once; a better one replaces it, a worse one changes nothing."""
    flow = stage.open().flow
    number = stage.sql("SELECT min(processor) FROM processors")[0][0]

    def put(status: str) -> int:
        one = NewCompletion(flow.flow_id, number, flow.customer_key, status, stage.clock.now())
        return stage.write(lambda tx: completion_put_many(tx, [one]))

    assert [put(s) for s in ("failed", "partial", "failed", "success", "partial")] == [
        1, 1, 0, 1, 0,
    ]  # fmt: skip
    (seen,) = stage.store.read(lambda tx: completions_of(tx, [flow.flow_id]))[flow.flow_id]
    assert seen.status == "success"
    assert len(stage.write(lambda tx: flow_event_take(tx, 10))) == 3
    assert stage.write(lambda tx: flow_event_take(tx, 10)) == []


def test_probes_are_leased_once(stage: Stage) -> None:
    """A probe has one holder; once its lease expired another takes it and fences the first off."""
    flow = stage.open().flow
    (gate, *_) = [
        r.gate_id for r in stage.store.read(lambda tx: phases_of(tx, [flow.flow_id]))[flow.flow_id]
    ]
    first = stage.write(lambda tx: probe_lease_many(tx, [gate], "a", 1000))
    assert stage.write(lambda tx: probe_lease_many(tx, [gate], "b", 1000)) == {}
    stage.clock.advance(1000)
    second = stage.write(lambda tx: probe_lease_many(tx, [gate], "b", 1000))
    assert second[gate] > first[gate]
    assert stage.write(lambda tx: probe_release_many(tx, first.items())) == set()
    assert stage.write(lambda tx: probe_release_many(tx, second.items())) == {gate}


def test_reports_open_the_next_generation(stage: Stage) -> None:
    """Without an open flow a report opens one; repeating the report changes nothing."""
    first = stage.client.flows.complete(report(execution_id="e1"))
    assert first.outcome == "opened"
    live = stage.sql("SELECT p.name FROM runs r JOIN processors p ON p.processor = r.processor")
    assert live == [("analytics_job",)], "what is done is not started, what follows it is"
    again = stage.client.flows.complete(report(execution_id="e1"))
    assert (again.outcome, again.flow_id) == ("known", first.flow_id)
    stage.run_off()
    flow = stage.client.flows.get(first.flow_id or "").flow
    assert (flow.state, flow.generation, flow.trigger_source) == ("COMPLETE", 1, "event")
    late = stage.client.flows.complete(report(execution_id="e1"))
    assert (late.outcome, late.flow_id) == ("known", first.flow_id)
    new = stage.client.flows.complete(report(execution_id="e2"))
    opened = stage.client.flows.get(new.flow_id or "").flow
    assert (new.outcome, opened.generation) == ("opened", 2)


def test_an_unknown_processor_is_a_dead_letter(stage: Stage) -> None:
    """An unusable report is stored as a dead letter, separate from dead runs."""
    got = stage.client.flows.complete(report(processor="unknown"))
    assert (got.outcome, got.flow_id, got.dead_letter_id is not None) == ("dead", None, True)
    assert stage.client.dead_letters.list(kind="run").items == []
    rows = stage.sql("SELECT kind, error_type FROM dead_letters")
    assert rows == [("delivery", "UNKNOWN_PROCESSOR")]


def test_a_report_ends_the_waiting_run(stage: Stage) -> None:
    """Work that was reported as done externally is not done again."""
    opened = stage.open()
    got = stage.client.flows.complete(report(completeness=Completeness(quality_score=0.5)))
    assert got.flow_id == encode("flow", opened.flow.flow_id)
    (seen,) = stage.detail(opened).completions
    assert seen.quality == 0.5
    assert stage.sql("SELECT final_state FROM history") == [("CANCELLED",)]
    assert stage.step().triggers == 1


def test_overrides(stage: Stage) -> None:
    """An override is granted with reason and expiry, listed, revoked once, and audited."""
    stage.open()
    now = stage.clock.now()
    approval = OverrideRequest(pipeline="nba", partition=DAY, customer="acme", reason="known gap",
                        expires_at=to_datetime(now + HOUR))  # fmt: skip
    granted = stage.client.as_actor("dana").overrides.grant(approval)
    assert stage.client.overrides.list(live=True).items == [granted]
    stage.client.as_actor("eli").overrides.revoke(granted.override_id)
    assert stage.client.overrides.list(live=True).items == []
    (listed,) = stage.client.overrides.list().items
    assert (listed.approved_by, listed.revoked_by) == ("dana", "eli")
    with pytest.raises(Conflict):
        stage.client.overrides.revoke(granted.override_id)
    actions = [row[0] for row in stage.sql("SELECT action FROM audit ORDER BY n")]
    assert actions == ["OVERRIDE_GRANTED", "OVERRIDE_REVOKED"]
    naive = to_datetime(now + HOUR).replace(tzinfo=None)
    wrongs: list[dict[str, object]] = [
        {"expires_at": to_datetime(now + 8 * DAY_US)}, {"expires_at": naive},
        {"expires_at": None}, {"expires": "1h"}, {"reason": " "}, {"phase": "nowhere"},
    ]  # fmt: skip
    for wrong in wrongs:
        given = {"pipeline": "nba", "partition": DAY, "customer": "acme", "reason": "r",
                 "expires_at": to_datetime(now + HOUR), **wrong}  # fmt: skip
        with pytest.raises(InvalidInput):
            stage.client.overrides.grant(OverrideRequest(**given))  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        stage.client.overrides.revoke(encode("ovr", 9_999))


def test_ended_flows_are_pruned(stage: Stage) -> None:
    """After a week a flow is deleted; its logs and its generation number stay."""
    opened = stage.open()
    stage.run_off()
    stage.clock.advance(8 * DAY_US)
    removed = stage.write(lambda tx: prune(tx, Retention()))
    assert removed["flows"] == 1
    assert stage.store.read(lambda tx: flow_get(tx, opened.flow.flow_id)) is None
    for table in ("flow_phases", "completions", "triggers"):
        assert stage.sql(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert stage.sql("SELECT count(*) FROM phase_completion_log") == [(2,)]
    assert stage.open().flow.generation == 2


def test_customers_do_not_see_each_other(stage: Stage) -> None:
    """A tenant's client finds its own flows, decisions and overrides, and no others."""
    own = stage.open().flow
    foreign = stage.open(customer="bravo").flow
    acme = stage.client.scoped("acme")
    assert acme.flows.get(encode("flow", own.flow_id)).flow.customer == "acme"
    with pytest.raises(NotFound):
        acme.flows.get(encode("flow", foreign.flow_id))
    with pytest.raises(NotFound):
        acme.flows.cancel(encode("flow", foreign.flow_id))
    assert {one.customer for one in acme.gates.decisions("nba").items} == {"acme"}
    events = stage.sql("SELECT event_type FROM orchestration_events ORDER BY event_time")
    assert {row[0] for row in events} == {"opened", "triggered"}
