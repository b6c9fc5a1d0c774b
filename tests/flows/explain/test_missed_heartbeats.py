"""A worker that misses heartbeats is named before another takes its runs over, on both engines."""

from __future__ import annotations

import pytest

from penstock.core.clock import MINUTE, SECOND, Micros
from penstock.core.ids import encode
from penstock.flows.explain.facts import HeartbeatFact
from penstock.runs.external.client.work import ExternalWorker
from penstock.runs.store.leases import session_expire, session_heartbeat
from tests.kits.client_harness import Harness
from tests.kits.flows import Stage, chain

LEASE: Micros = 30 * SECOND
RUNNING = "has been running since 00:00 on tester"


def text_of(harness: Harness, run_id: int, customer: str | None = None) -> str:
    """Return what `why` says about a run, without its id."""
    client = harness.client if customer is None else harness.client.scoped(customer)
    first = client.diagnostics.why_run(encode("run", run_id)).causes[0].text
    return first.partition(") ")[2].removesuffix("; it expires any moment")


def causes(harness: Harness, run_id: int) -> list[str]:
    """Return what `why` says below the line about the run."""
    found = harness.client.diagnostics.why_run(encode("run", run_id)).causes
    return [cause.text for cause in found[1:]]


class TestRule:
    """When heartbeats count as missed."""

    @pytest.mark.parametrize(
        ("heartbeat", "is_overdue"),
        [
            (HeartbeatFact(at=0, until_at=LEASE), False),
            (HeartbeatFact(at=-LEASE // 2, until_at=LEASE // 2), False),
            (HeartbeatFact(at=-LEASE // 2 - 1, until_at=LEASE // 2 - 1), True),
            (HeartbeatFact(at=-LEASE, until_at=0), True),
            (HeartbeatFact(at=None, until_at=-1), False),
            (HeartbeatFact(), True),
        ],
    )
    def test_half_of_the_lease(self, heartbeat: HeartbeatFact, is_overdue: bool) -> None:
        """More than half of the lease without a heartbeat, or no session any more."""
        assert heartbeat.is_overdue(0) is is_overdue


class TestBuiltIn:
    """Workers with a session."""

    def test_they_are_named(self, harness: Harness) -> None:
        """From half of the lease on; a heartbeat withdraws it, and the end of the session ends it.

        A caller of one customer learns nothing about workers that serve all customers.
        """
        run_id = harness.submit()
        session = harness.session(lease_us=LEASE)
        assert len(harness.claim(session=session)) == 1
        harness.clock.advance(15 * SECOND)
        assert text_of(harness, run_id) == RUNNING
        assert causes(harness, run_id) == ["it is executing; it times out at 01:00"]
        harness.clock.advance(SECOND)
        clause = (
            f"{RUNNING}; its worker has sent no heartbeat since 00:00:00, and the run will be "
            "taken over after 00:00:30 unless the worker reports"
        )
        assert text_of(harness, run_id) == clause
        assert causes(harness, run_id) == ["it may no longer be executing; it times out at 01:00"]
        assert text_of(harness, run_id, "acme") == RUNNING
        harness.write(lambda tx: session_heartbeat(tx, session, LEASE))
        assert text_of(harness, run_id) == RUNNING
        harness.clock.advance(LEASE)
        assert text_of(harness, run_id).endswith(
            "since 00:00:16, and the run will be taken over any moment unless the worker reports"
        )
        harness.clock.advance(1)
        assert harness.write(session_expire)
        assert text_of(harness, run_id) == (
            f"{RUNNING}; its worker has ended without completing it, and the run will be taken "
            "over any moment"
        )

    def test_explain_and_trace(self, harness: Harness, stage: Stage) -> None:
        """The explanation of a flow has the clause; the trace of another worker's run does not."""
        opened = stage.open()
        stage.admitter.run_once()
        (held,) = harness.claim(session=harness.session("w1", LEASE))
        assert held.flow_id == opened.flow.flow_id
        harness.submit(correlation_id="lone")
        second = harness.session("w2", LEASE)
        assert len(harness.claim(session=second)) == 1
        harness.clock.advance(20 * SECOND)
        harness.write(lambda tx: session_heartbeat(tx, second, LEASE))
        clause = "; its worker has sent no heartbeat since 00:00:00"
        story = stage.client.diagnostics.explain_flow(encode("flow", opened.flow.flow_id))
        (phase,) = [one for one in story.phases if one.phase == "raw"]
        assert clause in phase.headline
        assert any(clause in sentence for sentence in phase.sentences)
        (missing,) = harness.client.diagnostics.trace("lone").missing
        assert "no heartbeat" not in missing.text
        harness.clock.advance(20 * SECOND)
        (missing,) = harness.client.diagnostics.trace("lone").missing
        assert "its worker has sent no heartbeat since 00:00:20" in missing.text


class TestExternal:
    """Workers that hold each run by a lease."""

    def test_a_started_run(self, harness: Harness) -> None:
        """A claim expects no heartbeats; a started run does, one a minute. Its customer sees it."""
        run_id = harness.submit("outside")
        worker = ExternalWorker("w1", "key1")
        harness.client.work.claim(worker)
        harness.clock.advance(4 * MINUTE)
        assert text_of(harness, run_id) == "has been claimed since 00:00 by w1"
        harness.client.work.start(run_id, worker)
        harness.clock.advance(2 * MINUTE)
        assert text_of(harness, run_id) == "has been running since 00:04 on w1"
        harness.clock.advance(MINUTE)
        clause = (
            "has been running since 00:04 on w1; its worker has sent no heartbeat since 00:04:00, "
            "and the run will be taken over after 00:09:00 unless the worker reports"
        )
        assert text_of(harness, run_id) == clause
        assert text_of(harness, run_id, "acme") == clause
        harness.client.work.heartbeat(run_id, worker)
        assert text_of(harness, run_id) == "has been running since 00:04 on w1"


@pytest.fixture
def stage(harness: Harness) -> Stage:
    """A stage with a pipeline of two phases."""
    return Stage(harness.store, harness.clock, chain("raw", "publish", timezone="UTC"))
