"""The sweeper and the admitter on both engines: what a crash left behind is repaired once."""

import threading
from functools import partial

import pytest

from penstock.audit.telemetry import Event, Swept
from penstock.core.clock import HOUR, MINUTE, SECOND, to_datetime
from penstock.core.ids import encode
from penstock.db.store import Tx
from penstock.runs import attempt_result
from penstock.runs.admitter import BUSY_US, Admitter
from penstock.runs.rows import HeldRun
from penstock.runs.store import leases
from penstock.runs.store.admission import run_admit_due
from penstock.runs.sweeper import OVERDUE_GRACE_US, Sweeper
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg


def crash(harness: Harness, n: int = 1, *, start: bool = True) -> list[HeldRun]:
    """Claim runs for a worker that then sends no more heartbeats."""
    session = harness.session()
    held = harness.claim(n, start=start, session=session)
    assert len(held) == n
    harness.clock.advance(31 * SECOND)
    return held


class TestSessions:
    """Workers that disappeared."""

    def test_a_live_session_is_not_touched(self, harness: Harness) -> None:
        """Nothing is repaired while a session's lease lasts."""
        harness.submit()
        session = harness.session()
        held = harness.take(session=session)
        for _ in range(5):
            harness.clock.advance(29 * SECOND)
            assert harness.write(lambda tx: leases.session_heartbeat(tx, session, 30_000_000))
            assert harness.sweeper.run_once().total == 0
        assert len(harness.complete(held)) == 1

    def test_claimed_runs_are_released(self, harness: Harness) -> None:
        """Claims of a dead worker return to the queue, counted; its late result is refused."""
        run_id = harness.submit()
        (held,) = crash(harness, start=False)
        received: list[Event] = []
        harness.events.subscribe(received.append)
        sweep = harness.sweeper.run_once()
        assert (sweep.sessions, sweep.lapsed, sweep.stale) == (1, 1, 0)
        assert received == [Swept(sessions=1, lapsed=1, stale=0, timed_out=0, unblocked=0)]
        run = harness.run(run_id)
        assert (run.state, run.lapsed_claims) == ("PENDING", 1)
        assert harness.complete(held) == []
        harness.admitter.run_once()
        assert harness.take().run_id == run_id

    def test_the_fifth_lapse_is_the_last(self, harness: Harness) -> None:
        """A run that kills one worker after another is dead after five claims, not retried."""
        run_id = harness.submit()
        for lapse in range(1, 6):
            harness.admitter.run_once()
            crash(harness, start=False)
            harness.sweeper.run_once()
            run = harness.run(run_id)
            assert run.state == ("FAILED" if lapse == 5 else "PENDING")
        assert (run.error_type, run.is_dead) == ("CLAIM_LAPSED", True)
        assert [d.run_id for d in harness.client.dead_letters.list().items] == [
            encode("run", run_id)
        ]
        assert harness.counts("runs") == {"runs": 0}

    def test_a_stale_run_is_retried_at_once_then_later(self, harness: Harness) -> None:
        """A running run of a dead worker fails as stale; the first retry is immediate."""
        harness.submit()
        crash(harness)
        assert harness.sweeper.run_once().stale == 1
        harness.admitter.run_once()
        (second,) = crash(harness)
        assert (second.attempt, second.stales) == (2, 1)
        harness.sweeper.run_once()
        assert harness.admitter.run_once().runs == 0
        harness.clock.advance(10 * MINUTE)
        harness.admitter.run_once()
        (third,) = crash(harness)
        assert third.attempt == 3
        harness.sweeper.run_once()
        (dead,) = harness.client.dead_letters.list().items
        assert (dead.run_id, dead.error_type) == (encode("run", third.run_id), "STALE_EXECUTION")
        states = harness.column("SELECT final_state FROM history ORDER BY run_id")
        assert states == ["FAILED"] * 3

    def test_a_cancel_is_applied_without_the_holder(self, harness: Harness) -> None:
        """A run with a pending cancel whose holder died is cancelled and not retried."""
        one, two = harness.submit(), harness.submit()
        session = harness.session()
        harness.take(start=True, session=session)
        harness.take(start=False, session=session)
        for run_id in (one, two):
            assert harness.cancel(run_id) == "asked"
        harness.clock.advance(31 * SECOND)
        harness.sweeper.run_once()
        assert [harness.run(i).state for i in (one, two)] == ["CANCELLED"] * 2
        assert harness.counts("runs", "dead_letters") == {"runs": 0, "dead_letters": 0}

    def test_a_closed_session_leaves_orphans(self, harness: Harness) -> None:
        """Runs of a closed session are released without waiting for its lease."""
        harness.submit()
        session = harness.session()
        harness.take(session=session)
        harness.write(lambda tx: leases.session_close(tx, session))
        sweep = harness.sweeper.run_once()
        assert (sweep.sessions, sweep.stale) == (0, 1)

    def test_sweeping_twice_changes_nothing(self, harness: Harness) -> None:
        """A second sweep at the same time finds nothing and writes nothing."""
        for _ in range(6):
            harness.submit()
        crash(harness, 3)
        crash(harness, 3, start=False)
        assert harness.sweeper.run_once().total > 0
        before = harness.counts()
        assert harness.sweeper.run_once().total == 0
        assert harness.counts() == before

    def test_many_sweepers_repair_once(self, harness: Harness) -> None:
        """Concurrent sweepers repair each run exactly once."""
        n = 40
        for _ in range(n):
            harness.submit()
        crash(harness, n // 2)
        crash(harness, n // 2, start=False)
        gate = threading.Barrier(4)
        sweeps = []

        def sweep() -> None:
            mine = Sweeper(harness.store, jitter=lambda: 0.0)
            gate.wait(60)
            sweeps.append(mine.run_once())

        threads = [threading.Thread(target=sweep) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(sweeps) == 4
        assert sum(s.stale for s in sweeps) == n // 2
        assert sum(s.lapsed for s in sweeps) == n // 2
        assert sum(s.sessions for s in sweeps) == 2
        assert harness.counts("runs", "history") == {"runs": n, "history": n // 2}
        assert set(harness.column("SELECT lapses FROM runs")) == {0, 1}

    def test_a_run_without_session_or_lease_is_released(self, harness: Harness) -> None:
        """A held run with neither session nor lease is released like any other orphan."""
        run_id = harness.submit()
        harness.take(start=False)
        harness.clock.advance(HOUR)
        assert harness.sweeper.run_once().lapsed == 1
        assert harness.run(run_id).state == "PENDING"


class TestLeases:
    """Runs held by external workers."""

    def _external(self, harness: Harness, *, start: bool) -> HeldRun:
        """Claim a run as over the API, with a lease of five minutes."""
        harness.submit("outside")
        held = harness.take(pool="external", start=start)
        row = ("run", held.run_id, held.token, "api", 300 * SECOND)
        harness.write(lambda tx: leases.lease_take_many(tx, [row]))
        return held

    def test_an_extended_lease_keeps_its_run(self, harness: Harness) -> None:
        """A lease that is renewed keeps its run; the last renewal counts."""
        held = self._external(harness, start=True)
        for _ in range(4):
            harness.clock.advance(4 * MINUTE)
            row = ("run", held.run_id, held.token, 300 * SECOND)
            assert harness.write(partial(leases.lease_extend_many, rows=[row]))
            assert harness.sweeper.run_once().total == 0

    @pytest.mark.parametrize("start", [True, False])
    def test_an_expired_lease_is_swept(self, harness: Harness, start: bool) -> None:
        """After five minutes without a heartbeat a running run is stale, a claimed one released."""
        held = self._external(harness, start=start)
        harness.clock.advance(300 * SECOND)
        assert harness.sweeper.run_once().total == 0
        harness.clock.advance(1)
        sweep = harness.sweeper.run_once()
        assert (sweep.stale, sweep.lapsed) == ((1, 0) if start else (0, 1))
        assert harness.complete(held) == []
        row = ("run", held.run_id, held.token, 300 * SECOND)
        assert harness.write(lambda tx: leases.lease_extend_many(tx, [row])) == {}
        assert harness.counts("leases") == {"leases": 0}


class TestOverdue:
    """Runs over their time."""

    def test_an_overdue_run_times_out(self, harness: Harness) -> None:
        """A run over its maximum plus the grace ends as TIMEOUT and is retried with more time."""
        config = harness.config(
            max_execution_duration_minutes=2, retry_config={"timeout_multiplier": 2}
        )
        harness.clock.advance(HOUR)
        harness.tick()
        held = harness.take(session=harness.session(lease_us=HOUR))
        harness.clock.advance(2 * MINUTE + OVERDUE_GRACE_US)
        assert harness.sweeper.run_once().timed_out == 0
        harness.clock.advance(1)
        assert harness.sweeper.run_once().timed_out == 1
        run = harness.run(held.run_id)
        assert (run.state, run.status, run.error_type) == ("TIMEOUT", "TIMEOUT", "TIMEOUT")
        assert harness.complete(held) == []
        harness.clock.advance(5 * MINUTE)
        harness.admitter.run_once()
        again = harness.take()
        assert (again.config_id, again.attempt) == (config.config_id, 2)
        assert (again.max_execution_us, again.occurrence_time) == (4 * MINUTE, held.occurrence_time)

    def test_claimed_runs_are_not_overdue(self, harness: Harness) -> None:
        """Only running runs can exceed their time."""
        harness.submit()
        session = harness.session()
        harness.take(start=False, session=session)
        for _ in range(3):
            harness.clock.advance(2 * HOUR)
            harness.write(lambda tx: leases.session_heartbeat(tx, session, 3 * HOUR))
            assert harness.sweeper.run_once().timed_out == 0

    def test_a_cancel_beats_the_timeout(self, harness: Harness) -> None:
        """A run with a pending cancel is cancelled when over its time, and not retried."""
        run_id = harness.submit()
        harness.take(session=harness.session(lease_us=3 * HOUR))
        harness.cancel(run_id)
        harness.clock.advance(2 * HOUR)
        assert harness.sweeper.run_once().timed_out == 1
        assert harness.run(run_id).state == "CANCELLED"
        assert harness.counts("runs") == {"runs": 0}


class TestMissed:
    """Missed releases and pauses."""

    def test_a_missed_unblock_is_repaired(self, harness: Harness) -> None:
        """A run blocked behind a deleted one is unblocked by the next sweep."""
        first, second = harness.submit(ordering_key="k"), harness.submit(ordering_key="k")
        harness.sql(f"DELETE FROM runs WHERE run_id = {first}")
        assert harness.sweeper.run_once().unblocked == 1
        harness.admitter.run_once()
        assert harness.take().run_id == second

    def test_a_missed_pause_is_repaired(self, harness: Harness) -> None:
        """A run that missed a pause is paused, and one that missed a resume is resumed."""
        run_id = harness.submit()
        harness.client.pauses.pause("all", None)
        harness.sql("UPDATE runs SET admission = 0")
        assert harness.sweeper.run_once().repaused == 1
        assert harness.claim() == []
        harness.sql("DELETE FROM pauses")
        assert harness.sweeper.run_once().repaused == 1
        harness.admitter.run_once()
        assert harness.take().run_id == run_id


class TestAdmitter:
    """Admission of due runs."""

    def test_batches_reach_everything(self, harness: Harness) -> None:
        """One step admits all due runs, whatever the batch size, and returns the next time."""
        now = harness.clock.now()
        for i in range(7):
            harness.submit(at=to_datetime(now + MINUTE), customer=f"c{i % 3}")
        harness.submit(at=to_datetime(now + HOUR))
        harness.clock.advance(MINUTE)
        step = Admitter(harness.store, batch=2).run_once()
        assert (step.runs, step.next_at, step.now) == (7, now + HOUR, harness.clock.now())
        assert len(harness.claim()) == 7

    def test_no_waiting_runs(self, harness: Harness) -> None:
        """Without waiting runs there is no next time."""
        assert harness.admitter.run_once().next_at is None

    def test_a_paused_due_run_is_handled_once(self, harness: Harness) -> None:
        """A due run under a pause is marked as paused, and the admitter does not return to it."""
        harness.client.pauses.pause("all", None)
        harness.submit(at=to_datetime(harness.clock.now() + MINUTE))
        harness.clock.advance(MINUTE)
        harness.admitter.run_once()
        assert harness.admitter.run_once().next_at is None

    def test_runs_locked_by_another_admitter_are_skipped(self, harness: Harness) -> None:
        """Due runs locked by another admitter are left to it, without a busy loop."""
        if not harness.store.capabilities.concurrent_writers:
            pytest.skip("one writer")
        harness.submit(at=to_datetime(harness.clock.now() + MINUTE))
        harness.clock.advance(MINUTE)
        steps = []

        def other() -> None:
            steps.append(harness.admitter.run_once())

        def body(tx: Tx) -> None:
            assert sum(run_admit_due(tx, 10).values()) == 1
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(60)

        harness.write(body)
        assert [(s.runs, s.next_at) for s in steps] == [(0, harness.clock.now() + BUSY_US)]

    def test_waiting_raises_the_level(self, harness: Harness) -> None:
        """A run that waited ten minutes is raised by a level, at most once a minute."""
        low = harness.submit(priority=1)
        harness.admitter.run_once()
        harness.clock.advance(11 * MINUTE)
        assert harness.admitter.run_once().aged == 1
        assert harness.admitter.run_once().aged == 0
        assert harness.column(f"SELECT level FROM runs WHERE run_id = {low}") == [2]


class TestFailures:
    """Configs that fail repeatedly."""

    def _fail(self, harness: Harness, times: int) -> None:
        for _ in range(times):
            harness.clock.advance(HOUR)
            assert harness.tick().runs == 1
            harness.fail(harness.take())

    def test_three_alert_five_disable(self, harness: Harness) -> None:
        """3 consecutive dead runs: MEDIUM alert, counted at 4; 5: disabled, with a HIGH alert."""
        config = harness.config()
        self._fail(harness, 2)
        assert harness.client.alerts.list().items == []
        self._fail(harness, 2)
        (alert,) = harness.client.alerts.list(state="open").items
        assert (alert.rule, alert.severity, alert.times) == ("config_failing", "MEDIUM", 2)
        assert alert.customer == "acme"
        self._fail(harness, 1)
        (alert,) = harness.client.alerts.list(state="open").items
        assert (alert.rule, alert.severity, alert.times) == ("config_disabled", "HIGH", 1)
        off = harness.client.configs.get(cfg(config))
        assert (off.is_active, off.inactive_reason) == (False, "5 consecutive failures")
        assert harness.schedule_row(config.config_id) is None
        link = harness.client.configs.audit("acme").items[-1]
        assert (link.action, link.changed_by) == ("DEACTIVATED", "penstock")
        harness.clock.advance(HOUR)
        assert harness.tick().due == 0
        on = harness.client.as_actor("ann").configs.enable(cfg(config))
        assert (on.is_active, on.consecutive_failures) == (True, 0)
        assert harness.client.alerts.list(state="open").items == []
        self._fail(harness, 2)
        assert harness.client.alerts.list(state="open").items == []

    def test_a_success_resets(self, harness: Harness) -> None:
        """A success between failures resets the count."""
        config = harness.config()
        for _ in range(3):
            self._fail(harness, 2)
            harness.clock.advance(HOUR)
            harness.tick()
            harness.complete(harness.take())
        assert harness.client.configs.get(cfg(config)).consecutive_failures == 0
        assert harness.client.alerts.list().items == []

    def test_retries_and_cancels_do_not_count(self, harness: Harness) -> None:
        """Only dead runs count: neither the attempts before, nor a cancel."""
        config = harness.config()
        harness.clock.advance(HOUR)
        harness.tick()
        harness.fail(harness.take(), error_type="TRANSIENT_NETWORK")
        assert harness.client.configs.get(cfg(config)).consecutive_failures == 0
        harness.clock.advance(6 * MINUTE)
        harness.admitter.run_once()
        held = harness.take()
        harness.end(attempt_result.cancelled(held, actor="ann"))
        assert harness.client.configs.get(cfg(config)).consecutive_failures == 0

    def test_failures_in_one_batch(self, harness: Harness) -> None:
        """Five dead runs reported in one batch disable the config like five single ones."""
        config = harness.config(overlap="allow")
        for _ in range(6):
            harness.start(config, trigger_source="scheduler")
        harness.fail(*harness.claim())
        assert not harness.client.configs.get(cfg(config)).is_active
        rules = [alert.rule for alert in harness.client.alerts.list(state="open").items]
        assert rules == ["config_disabled"]
        actions = [link.action for link in harness.client.configs.audit("acme").items]
        assert actions == ["CREATED", "DEACTIVATED"]

    def test_stale_and_overdue_runs_count_too(self, harness: Harness) -> None:
        """A run ended by the sweeper counts like one that a worker reported."""
        config = harness.config(retry_config={"max_attempts": 1})
        for dead in range(1, 4):
            harness.clock.advance(HOUR - harness.clock.now() % HOUR)
            harness.tick()
            crash(harness)
            harness.sweeper.run_once()
            assert harness.client.configs.get(cfg(config)).consecutive_failures == dead
        assert [a.rule for a in harness.client.alerts.list().items] == ["config_failing"]
