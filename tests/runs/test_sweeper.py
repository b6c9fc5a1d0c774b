"""The sweeper and the admitter on both engines: what a crash left behind is repaired once."""

import threading
from functools import partial

import pytest

from penstock.audit.telemetry import Event, Swept
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.db.store import Tx
from penstock.runs import attempt_result
from penstock.runs.admitter import BUSY_US, Admitter
from penstock.runs.rows import HeldRun
from penstock.runs.store import leases
from penstock.runs.store.admission import run_admit_due
from penstock.runs.sweeper import OVERDUE_GRACE_US, Sweeper
from tests.kits.desk import Harness


def crash(desk: Harness, n: int = 1, *, start: bool = True) -> list[HeldRun]:
    """Claim runs for a worker that then sends no more heartbeats."""
    session = desk.session()
    held = desk.claim(n, start=start, session=session)
    assert len(held) == n
    desk.clock.advance(31 * SECOND)
    return held


class TestSessions:
    """Workers that disappeared."""

    def test_a_live_session_is_not_touched(self, desk: Harness) -> None:
        """Nothing is repaired while a session's lease lasts."""
        desk.submit()
        session = desk.session()
        held = desk.take(session=session)
        for _ in range(5):
            desk.clock.advance(29 * SECOND)
            assert desk.write(lambda tx: leases.session_beat(tx, session, 30_000_000))
            assert desk.sweeper.run_once().total == 0
        assert len(desk.complete(held)) == 1

    def test_claimed_runs_are_released(self, desk: Harness) -> None:
        """Claims of a dead worker return to the queue, counted; its late result is refused."""
        run_id = desk.submit()
        (held,) = crash(desk, start=False)
        received: list[Event] = []
        desk.events.subscribe(received.append)
        sweep = desk.sweeper.run_once()
        assert (sweep.sessions, sweep.lapsed, sweep.stale) == (1, 1, 0)
        assert received == [Swept(sessions=1, lapsed=1, stale=0, timed_out=0, unblocked=0)]
        run = desk.client.runs.get(run_id)
        assert (run.state, run.lapses) == ("PENDING", 1)
        assert desk.complete(held) == []
        desk.admitter.run_once()
        assert desk.take().run_id == run_id

    def test_the_fifth_lapse_is_the_last(self, desk: Harness) -> None:
        """A run that kills one worker after another is dead after five claims, not retried."""
        run_id = desk.submit()
        for lapse in range(1, 6):
            desk.admitter.run_once()
            crash(desk, start=False)
            desk.sweeper.run_once()
            run = desk.client.runs.get(run_id)
            assert run.state == ("FAILED" if lapse == 5 else "PENDING")
        assert (run.error_type, run.is_dead) == ("CLAIM_LAPSED", True)
        assert [d.subject for d in desk.client.dead_letters.find()] == [run_id]
        assert desk.counts("runs") == {"runs": 0}

    def test_a_stale_run_is_retried_at_once_then_later(self, desk: Harness) -> None:
        """A running run of a dead worker fails as stale; the first retry is immediate."""
        desk.submit()
        crash(desk)
        assert desk.sweeper.run_once().stale == 1
        desk.admitter.run_once()
        (second,) = crash(desk)
        assert (second.attempt, second.stales) == (2, 1)
        desk.sweeper.run_once()
        assert desk.admitter.run_once().runs == 0
        desk.clock.advance(10 * MINUTE)
        desk.admitter.run_once()
        (third,) = crash(desk)
        assert third.attempt == 3
        desk.sweeper.run_once()
        (dead,) = desk.client.dead_letters.find()
        assert (dead.subject, dead.error_type) == (third.run_id, "STALE_EXECUTION")
        states = desk.column("SELECT final_state FROM history ORDER BY run_id")
        assert states == ["FAILED"] * 3

    def test_a_cancel_is_applied_without_the_holder(self, desk: Harness) -> None:
        """A run with a pending cancel whose holder died is cancelled and not retried."""
        one, two = desk.submit(), desk.submit()
        session = desk.session()
        desk.take(start=True, session=session)
        desk.take(start=False, session=session)
        for run_id in (one, two):
            assert desk.client.runs.cancel(run_id) == "asked"
        desk.clock.advance(31 * SECOND)
        desk.sweeper.run_once()
        assert [desk.client.runs.get(i).state for i in (one, two)] == ["CANCELLED"] * 2
        assert desk.counts("runs", "dead_letters") == {"runs": 0, "dead_letters": 0}

    def test_a_closed_session_leaves_orphans(self, desk: Harness) -> None:
        """Runs of a closed session are released without waiting for its lease."""
        desk.submit()
        session = desk.session()
        desk.take(session=session)
        desk.write(lambda tx: leases.session_close(tx, session))
        sweep = desk.sweeper.run_once()
        assert (sweep.sessions, sweep.stale) == (0, 1)

    def test_sweeping_twice_changes_nothing(self, desk: Harness) -> None:
        """A second sweep at the same time finds nothing and writes nothing."""
        for _ in range(6):
            desk.submit()
        crash(desk, 3)
        crash(desk, 3, start=False)
        assert desk.sweeper.run_once().total > 0
        before = desk.counts()
        assert desk.sweeper.run_once().total == 0
        assert desk.counts() == before

    def test_many_sweepers_repair_once(self, desk: Harness) -> None:
        """Concurrent sweepers repair each run exactly once."""
        n = 40
        for _ in range(n):
            desk.submit()
        crash(desk, n // 2)
        crash(desk, n // 2, start=False)
        gate = threading.Barrier(4)
        sweeps = []

        def sweep() -> None:
            mine = Sweeper(desk.store, jitter=lambda: 0.0)
            gate.wait(30)
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
        assert desk.counts("runs", "history") == {"runs": n, "history": n // 2}
        assert set(desk.column("SELECT lapses FROM runs")) == {0, 1}

    def test_a_run_without_session_or_lease_is_released(self, desk: Harness) -> None:
        """A held run with neither session nor lease is released like any other orphan."""
        run_id = desk.submit()
        desk.take(start=False)
        desk.clock.advance(HOUR)
        assert desk.sweeper.run_once().lapsed == 1
        assert desk.client.runs.get(run_id).state == "PENDING"


class TestLeases:
    """Runs held by external workers."""

    def _external(self, desk: Harness, *, start: bool) -> HeldRun:
        """Claim a run as over the API, with a lease of five minutes."""
        desk.submit("outside")
        held = desk.take(pool="external", start=start)
        row = ("run", held.run_id, held.token, "api", 300 * SECOND)
        desk.write(lambda tx: leases.lease_take_many(tx, [row]))
        return held

    def test_an_extended_lease_keeps_its_run(self, desk: Harness) -> None:
        """A lease that is renewed keeps its run; the last renewal counts."""
        held = self._external(desk, start=True)
        for _ in range(4):
            desk.clock.advance(4 * MINUTE)
            row = ("run", held.run_id, held.token, 300 * SECOND)
            assert desk.write(partial(leases.lease_extend_many, rows=[row]))
            assert desk.sweeper.run_once().total == 0

    @pytest.mark.parametrize("start", [True, False])
    def test_an_expired_lease_is_swept(self, desk: Harness, start: bool) -> None:
        """After five minutes without a heartbeat a running run is stale, a claimed one released."""
        held = self._external(desk, start=start)
        desk.clock.advance(300 * SECOND)
        assert desk.sweeper.run_once().total == 0
        desk.clock.advance(1)
        sweep = desk.sweeper.run_once()
        assert (sweep.stale, sweep.lapsed) == ((1, 0) if start else (0, 1))
        assert desk.complete(held) == []
        row = ("run", held.run_id, held.token, 300 * SECOND)
        assert desk.write(lambda tx: leases.lease_extend_many(tx, [row])) == {}
        assert desk.counts("leases") == {"leases": 0}


class TestOverdue:
    """Runs over their time."""

    def test_an_overdue_run_times_out(self, desk: Harness) -> None:
        """A run over its maximum plus the grace ends as TIMEOUT and is retried with more time."""
        config = desk.config(
            max_execution_duration_minutes=2, retry_config={"timeout_multiplier": 2}
        )
        desk.clock.advance(HOUR)
        desk.tick()
        held = desk.take(session=desk.session(lease_us=HOUR))
        desk.clock.advance(2 * MINUTE + OVERDUE_GRACE_US)
        assert desk.sweeper.run_once().timed_out == 0
        desk.clock.advance(1)
        assert desk.sweeper.run_once().timed_out == 1
        run = desk.client.runs.get(held.run_id)
        assert (run.state, run.status, run.error_type) == ("TIMEOUT", "TIMEOUT", "TIMEOUT")
        assert desk.complete(held) == []
        desk.clock.advance(5 * MINUTE)
        desk.admitter.run_once()
        again = desk.take()
        assert (again.config_id, again.attempt) == (config.config_id, 2)
        assert (again.max_execution_us, again.occurrence_time) == (4 * MINUTE, held.occurrence_time)

    def test_claimed_runs_are_not_overdue(self, desk: Harness) -> None:
        """Only running runs can exceed their time."""
        desk.submit()
        session = desk.session()
        desk.take(start=False, session=session)
        for _ in range(3):
            desk.clock.advance(2 * HOUR)
            desk.write(lambda tx: leases.session_beat(tx, session, 3 * HOUR))
            assert desk.sweeper.run_once().timed_out == 0

    def test_a_cancel_beats_the_timeout(self, desk: Harness) -> None:
        """A run with a pending cancel is cancelled when over its time, and not retried."""
        run_id = desk.submit()
        desk.take(session=desk.session(lease_us=3 * HOUR))
        desk.client.runs.cancel(run_id)
        desk.clock.advance(2 * HOUR)
        assert desk.sweeper.run_once().timed_out == 1
        assert desk.client.runs.get(run_id).state == "CANCELLED"
        assert desk.counts("runs") == {"runs": 0}


class TestMissed:
    """Missed releases and pauses."""

    def test_a_missed_unblock_is_repaired(self, desk: Harness) -> None:
        """A run blocked behind a deleted one is unblocked by the next sweep."""
        first, second = desk.submit(ordering_key="k"), desk.submit(ordering_key="k")
        desk.sql(f"DELETE FROM runs WHERE run_id = {first}")
        assert desk.sweeper.run_once().unblocked == 1
        desk.admitter.run_once()
        assert desk.take().run_id == second

    def test_a_missed_pause_is_repaired(self, desk: Harness) -> None:
        """A run that missed a pause is paused, and one that missed a resume is resumed."""
        run_id = desk.submit()
        desk.client.pauses.pause("all", None)
        desk.sql("UPDATE runs SET admission = 0")
        assert desk.sweeper.run_once().repaused == 1
        assert desk.claim() == []
        desk.sql("DELETE FROM pauses")
        assert desk.sweeper.run_once().repaused == 1
        desk.admitter.run_once()
        assert desk.take().run_id == run_id


class TestAdmitter:
    """Admission of due runs."""

    def test_batches_reach_everything(self, desk: Harness) -> None:
        """One step admits all due runs, whatever the batch size, and returns the next time."""
        now = desk.clock.now()
        for i in range(7):
            desk.submit(at=now + MINUTE, customer=f"c{i % 3}")
        desk.submit(at=now + HOUR)
        desk.clock.advance(MINUTE)
        step = Admitter(desk.store, batch=2).run_once()
        assert (step.runs, step.next_at, step.now) == (7, now + HOUR, desk.clock.now())
        assert len(desk.claim()) == 7

    def test_no_waiting_runs(self, desk: Harness) -> None:
        """Without waiting runs there is no next time."""
        assert desk.admitter.run_once().next_at is None

    def test_a_paused_due_run_is_handled_once(self, desk: Harness) -> None:
        """A due run under a pause is marked as paused, and the admitter does not return to it."""
        desk.client.pauses.pause("all", None)
        desk.submit(at=desk.clock.now() + MINUTE)
        desk.clock.advance(MINUTE)
        desk.admitter.run_once()
        assert desk.admitter.run_once().next_at is None

    def test_runs_locked_by_another_admitter_are_skipped(self, desk: Harness) -> None:
        """Due runs locked by another admitter are left to it, without a busy loop."""
        if not desk.store.capabilities.concurrent_writers:
            pytest.skip("one writer")
        desk.submit(at=desk.clock.now() + MINUTE)
        desk.clock.advance(MINUTE)
        steps = []

        def other() -> None:
            steps.append(desk.admitter.run_once())

        def body(tx: Tx) -> None:
            assert sum(run_admit_due(tx, 10).values()) == 1
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(30)

        desk.write(body)
        assert [(s.runs, s.next_at) for s in steps] == [(0, desk.clock.now() + BUSY_US)]

    def test_waiting_raises_the_level(self, desk: Harness) -> None:
        """A run that waited ten minutes is raised by a level, at most once a minute."""
        low = desk.submit(priority=1)
        desk.admitter.run_once()
        desk.clock.advance(11 * MINUTE)
        assert desk.admitter.run_once().aged == 1
        assert desk.admitter.run_once().aged == 0
        assert desk.column(f"SELECT level FROM runs WHERE run_id = {low}") == [2]


class TestFailures:
    """Configs that fail repeatedly."""

    def _fail(self, desk: Harness, times: int) -> None:
        for _ in range(times):
            desk.clock.advance(HOUR)
            assert desk.tick().runs == 1
            desk.fail(desk.take())

    def test_three_alert_five_disable(self, desk: Harness) -> None:
        """3 consecutive dead runs: MEDIUM alert, counted at 4; 5: disabled, with a HIGH alert."""
        config = desk.config()
        self._fail(desk, 2)
        assert desk.client.views.alerts() == []
        self._fail(desk, 2)
        (alert,) = desk.client.views.alerts(state="open")
        assert (alert.rule, alert.severity, alert.times) == ("config_failing", "MEDIUM", 2)
        assert alert.customer_id == "acme"
        self._fail(desk, 1)
        (alert,) = desk.client.views.alerts(state="open")
        assert (alert.rule, alert.severity, alert.times) == ("config_disabled", "HIGH", 1)
        off = desk.client.configs.get(config.config_id)
        assert (off.is_active, off.inactive_reason) == (False, "5 consecutive failures")
        assert desk.schedule_row(config.config_id) is None
        link = desk.client.configs.audit("acme")[-1]
        assert (link.action, link.actor) == ("DEACTIVATED", "penstock")
        desk.clock.advance(HOUR)
        assert desk.tick().due == 0
        on = desk.client.configs.enable(config.config_id, actor="ann")
        assert (on.is_active, on.consecutive_failures) == (True, 0)
        assert desk.client.views.alerts(state="open") == []
        self._fail(desk, 2)
        assert desk.client.views.alerts(state="open") == []

    def test_a_success_resets(self, desk: Harness) -> None:
        """A success between failures resets the count."""
        config = desk.config()
        for _ in range(3):
            self._fail(desk, 2)
            desk.clock.advance(HOUR)
            desk.tick()
            desk.complete(desk.take())
        assert desk.client.configs.get(config.config_id).consecutive_failures == 0
        assert desk.client.views.alerts() == []

    def test_retries_and_cancels_do_not_count(self, desk: Harness) -> None:
        """Only dead runs count: neither the attempts before, nor a cancel."""
        config = desk.config()
        desk.clock.advance(HOUR)
        desk.tick()
        desk.fail(desk.take(), error_type="TRANSIENT_NETWORK")
        assert desk.client.configs.get(config.config_id).consecutive_failures == 0
        desk.clock.advance(6 * MINUTE)
        desk.admitter.run_once()
        held = desk.take()
        desk.end(attempt_result.cancelled(held, actor="ann"))
        assert desk.client.configs.get(config.config_id).consecutive_failures == 0

    def test_failures_in_one_batch(self, desk: Harness) -> None:
        """Five dead runs reported in one batch disable the config like five single ones."""
        config = desk.config(overlap="allow")
        for _ in range(6):
            desk.client.configs.start(config.config_id)
        desk.fail(*desk.claim())
        assert not desk.client.configs.get(config.config_id).is_active
        rules = [alert.rule for alert in desk.client.views.alerts(state="open")]
        assert rules == ["config_disabled"]
        actions = [link.action for link in desk.client.configs.audit("acme")]
        assert actions == ["CREATED", "DEACTIVATED"]

    def test_stale_and_overdue_runs_count_too(self, desk: Harness) -> None:
        """A run ended by the sweeper counts like one that a worker reported."""
        config = desk.config(retry_config={"max_attempts": 1})
        for dead in range(1, 4):
            desk.clock.advance(HOUR - desk.clock.now() % HOUR)
            desk.tick()
            crash(desk)
            desk.sweeper.run_once()
            assert desk.client.configs.get(config.config_id).consecutive_failures == dead
        assert [a.rule for a in desk.client.views.alerts()] == ["config_failing"]
