"""Expiry: runs that were not started in time end as EXPIRED, counted in one alert per pipeline."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from penstock import Pipeline, connect
from penstock.core.clock import HOUR, MINUTE, SECOND, to_datetime
from penstock.core.errors import IllegalTransition, InvalidInput
from penstock.core.ids import decode, encode
from penstock.db.store import Store, StoreView, Tx
from penstock.runs.admitter import Admitter
from penstock.runs.records import Submission
from penstock.runs.store import expiry
from penstock.runs.store.runs import run_claim_by_id
from penstock.runs.sweeper import Sweeper
from penstock.schedules.records import Config, ConfigChange
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.kits.shell import Shell
from tests.kits.world import World

WAIT = 10 * MINUTE


def sweeper(store: StoreView) -> Sweeper:
    """Return a sweeper with a fixed jitter."""
    return Sweeper(store, jitter=lambda: 0.5)


@pytest.fixture
def harness(store: Store, clock: VirtualClock) -> Harness:
    """A client over a store with some pipelines."""
    return Harness(store, clock)


class TestEnd:
    """How a run expires."""

    def test_not_started_in_time(self, world: World) -> None:
        """It ends as EXPIRED at its time, not before; others stay. No retry, no dead letter."""
        run_id, other = world.insert_one(expires_us=WAIT), world.insert_one()
        world.clock.advance(WAIT - 1)
        assert sweeper(world.store).run_once().expired == 0
        world.clock.advance(1)
        assert sweeper(world.store).run_once().expired == 1
        row = world.run(run_id)
        assert (row.state, row.status, row.error_type) == ("EXPIRED", None, "EXPIRED")
        assert "not started within 10m of" in json.loads(row.error_details or "")["message"]
        assert not row.is_dead
        assert world.value("SELECT count(*) FROM dead_letters") == 0
        assert [held.run_id for held in world.claim()] == [other]
        entries = [(e.action, e.from_state, e.to_state) for e in world.journal(run_id)]
        assert entries[-1] == ("ended", "PENDING", "EXPIRED")
        assert world.sql("SELECT final_state, runs FROM run_sums") == [("EXPIRED", 1)]

    def test_late_runs_are_not_claimed(self, world: World) -> None:
        """A run past its time is not started, even before the sweeper has ended it."""
        run_id = world.insert_one(expires_us=WAIT)
        world.clock.advance(WAIT)
        assert world.claim() == []
        assert world.write(lambda tx: _claim_by_id(tx, run_id)) is None

    def test_started_runs_do_not_expire(self, world: World) -> None:
        """A claimed run is not concerned, and a released one has its time again."""
        world.insert_one(expires_us=WAIT)
        held = world.claim_one(start=True)
        world.clock.advance(2 * WAIT)
        assert world.write(partial(expiry.run_expired, n=10)) == []
        world.release(held)
        assert world.run(held.run_id).expires_at == world.clock.now() + WAIT

    def test_counts_from_when_it_is_due(self, world: World) -> None:
        """A delayed run has its time from the moment at which it is due."""
        run_id = world.insert_one(expires_us=WAIT, scheduled_time=world.clock.now() + HOUR)
        assert world.run(run_id).expires_at == world.clock.now() + HOUR + WAIT
        world.clock.advance(HOUR + WAIT - 1)
        assert sweeper(world.store).run_once().expired == 0
        world.clock.advance(1)
        assert sweeper(world.store).run_once().expired == 1

    @pytest.mark.parametrize("mark", [0, 1, 2, 3, 4, 5])
    def test_whatever_it_waits_for(self, world: World, mark: int) -> None:
        """It expires while ready, due, paused, blocked, limited or gated."""
        run_id = world.insert_one(expires_us=WAIT)
        world.sql(f"UPDATE runs SET admission = {mark}")
        world.clock.advance(WAIT)
        sweeper(world.store).run_once()
        assert world.run(run_id).state == "EXPIRED"

    def test_unblocks_its_ordering_key(self, world: World) -> None:
        """The next run of its ordering key follows."""
        world.insert_one(expires_us=WAIT, ordering_key="k")
        behind = world.insert_one(ordering_key="k")
        world.clock.advance(WAIT)
        sweeper(world.store).run_once()
        Admitter(world.store).run_once()
        assert [held.run_id for held in world.claim()] == [behind]

    def test_retries_have_their_own_time(self, world: World) -> None:
        """An automatic retry keeps the setting and counts from when it is due."""
        world.insert_one(expires_us=WAIT)
        held = world.claim_one(start=True)
        (end,) = world.fail(held, retry_delay_us=MINUTE)
        assert end.retry_run_id is not None
        assert world.run(end.retry_run_id).expires_at == world.clock.now() + MINUTE + WAIT

    def test_many_in_batches(self, world: World) -> None:
        """More than a batch expire in one sweep, with one alert that names pipeline and count."""
        world.insert(1_203, expires_us=WAIT)
        world.clock.advance(WAIT)
        assert sweeper(world.store).run_once().expired == 1_203
        ((message, detail),) = world.sql("SELECT message, detail FROM alerts")
        assert message.startswith("1,203 runs of pipeline etl expired before they were started")
        fix = "penstock runs list --pipeline etl --state EXPIRED"
        assert json.loads(detail) == {"count": 1_203, "pipeline": "etl", "fix": fix}
        world.insert(1, expires_us=1)
        world.clock.advance(1)
        sweeper(world.store).run_once()
        assert world.value("SELECT message FROM alerts").startswith("1,204 runs")
        world.clock.advance(2 * HOUR)
        sweeper(world.store).run_once()
        assert world.value("SELECT state FROM alerts") == "resolved"

    def test_claimed_after_it_was_found(self, world: World) -> None:
        """A run that is claimed between the two statements of a sweep keeps running."""
        run_id = world.insert_one(expires_us=WAIT)
        world.claim_one(start=True)
        assert world.write(partial(expiry.run_expire_many, ids=[run_id])) == 0
        assert world.run(run_id).state == "RUNNING"

    def test_the_search_uses_the_index(self, world: World) -> None:
        """The sweep reads the index of expiring runs, not the queue."""
        if world.store.capabilities.engine != "sqlite":
            world.sql("SET enable_seqscan = off")
        explain = "EXPLAIN QUERY PLAN" if world.store.capabilities.engine == "sqlite" else "EXPLAIN"
        found = world.sql(
            f"{explain} SELECT run_id FROM runs WHERE expires_us IS NOT NULL AND admission < 6 "
            "AND scheduled_time + expires_us <= 1 ORDER BY scheduled_time + expires_us LIMIT 5"
        )
        assert "runs_expiring" in str(found)


def _claim_by_id(tx: Tx, run_id: int) -> object:
    return run_claim_by_id(tx, run_id, "tester")


def quick() -> Pipeline:
    """Return a pipeline whose runs expire after five minutes."""
    pipeline = Pipeline("quick")

    @pipeline.processor(expires_after="5m")
    def one(run: Any) -> None:
        """Do nothing."""

    return pipeline


class TestSources:
    """A submission, a config or the processor sets the time; the nearest one applies."""

    def test_submission(self, harness: Harness) -> None:
        """The submission's own time; the record shows when it expires."""
        wanted = Submission(pipeline="nightly", customer="acme", expires_after="15m")
        run = harness.client.runs.get(harness.client.runs.submit(wanted).run_id)
        assert run.expires_at is not None
        assert (run.expires_at - run.scheduled_time).total_seconds() == 900

    @pytest.mark.parametrize("value", ["0s", "soon", -1, "366d"])
    def test_bounds(self, harness: Harness, value: Any) -> None:
        """The error names the field."""
        with pytest.raises(InvalidInput, match="expires_after"):
            harness.client.runs.submit(Submission(pipeline="nightly", expires_after=value))

    def test_config_and_processor(self, harness: Harness) -> None:
        """A config's time is applied by scheduler and start, before the processor's."""
        harness.client.register([quick()])
        config = harness.client.configs.create(
            "acme", Config(pipeline="quick", cron="0 * * * *", overlap="allow")
        )
        assert config.expires_after is None
        spans = []
        for minutes in (None, 7):
            if minutes is not None:
                change = ConfigChange(expires_after=_minutes(minutes))
                assert harness.client.configs.update(config.config_id, change).expires_after
            harness.client.configs.start(config.config_id)
            harness.clock.advance(HOUR)
            harness.tick()
            for run in harness.client.runs.list(state="PENDING").items:
                assert run.expires_at is not None
                spans.append((run.expires_at - run.scheduled_time).total_seconds())
                harness.client.runs.cancel(run.run_id)
        assert set(spans[:2]) == {300.0}
        assert set(spans[2:]) == {420.0}
        removed = harness.client.configs.update(config.config_id, ConfigChange(expires_after=None))
        assert removed.expires_after is None

    def test_retry_by_hand(self, harness: Harness) -> None:
        """An expired run can be retried; it is final otherwise."""
        wanted = Submission(pipeline="nightly", customer="acme", expires_after="1s")
        run_id = harness.client.runs.submit(wanted).run_id
        harness.clock.advance(SECOND)
        sweeper(harness.store).run_once()
        with pytest.raises(IllegalTransition):
            harness.client.runs.cancel(run_id)
        again = harness.client.runs.retry(run_id)
        assert harness.client.runs.get(again.run_id).state == "PENDING"
        assert harness.client.views.overview().expired_today == 1

    def test_why(self, harness: Harness) -> None:
        """The cause tree says when a waiting run expires."""
        wanted = Submission(pipeline="nightly", customer="acme", expires_after="1h")
        run_id = harness.client.runs.submit(wanted).run_id
        top = harness.client.diagnostics.why_run(run_id).causes[0]
        assert "; it expires" in top.text
        assert top.until is not None


class TestDelay:
    """Delayed submissions."""

    def test_delay(self, harness: Harness) -> None:
        """A delay counts from the database's time; the run waits, visibly, and is cancellable."""
        wanted = Submission(pipeline="nightly", customer="acme", delay="10m")
        run = harness.client.runs.get(harness.client.runs.submit(wanted).run_id)
        assert (run.waits, run.scheduled_time) == ("later", run.created_at + _minutes(10))
        (cause,) = harness.client.diagnostics.why_run(run.run_id).causes[1:]
        assert cause.earliest_at == run.scheduled_time
        assert harness.client.runs.cancel(run.run_id).outcome == "cancelled"

    def test_idempotent(self, harness: Harness) -> None:
        """The same delay under the same key returns the same run, whenever it is repeated."""
        wanted = Submission(pipeline="nightly", customer="acme", delay="10m")
        first = harness.client.runs.submit(wanted, key="k")
        harness.clock.advance(MINUTE)
        assert harness.client.runs.submit(wanted, key="k") == first

    def test_many(self, harness: Harness) -> None:
        """Delays differ within one call."""
        wanted = [Submission(pipeline="nightly", delay=f"{n}m") for n in (0, 1, 2)]
        ids = harness.client.runs.submit_many(wanted)
        waits = [harness.client.runs.get(run_id).waits for run_id in ids]
        assert waits == ["ready", "later", "later"]
        harness.clock.advance(2 * MINUTE)
        Admitter(harness.store).run_once()
        assert harness.client.runs.get(ids[2]).waits == "ready"

    def test_bounds(self, harness: Harness) -> None:
        """A delay excludes a time; both have bounds."""
        at = to_datetime(harness.client.views.now())
        for wanted in (
            Submission(pipeline="nightly", delay="10m", at=at),
            Submission(pipeline="nightly", delay="-1s"),
            Submission(pipeline="nightly", delay="366d"),
        ):
            with pytest.raises(InvalidInput, match="delay"):
                harness.client.runs.submit(wanted)


def _minutes(n: float) -> timedelta:
    return timedelta(minutes=n)


class TestPriority:
    """Later attempts keep the priority of the first one."""

    def test_kept(self, harness: Harness) -> None:
        """An automatic retry, a retry by hand and a replay have the original's priority."""
        harness.submit("nightly", customer="acme", priority=8)
        (end,) = harness.fail(harness.take(), error_type="TRANSIENT_NETWORK")
        assert end.retry_run_id is not None
        assert harness.run(end.retry_run_id).priority == 8
        harness.cancel(end.retry_run_id)
        by_hand = harness.retry(end.retry_run_id)
        assert harness.run(by_hand).priority == 8
        harness.fail(harness.take())
        dead = harness.client.dead_letters.get(encode("run", by_hand)).dead_letter
        made = harness.client.dead_letters.replay(dead.dead_letter_id)
        assert made is not None
        (again,) = harness.client.runs.list(state="PENDING").items
        assert again.priority == 8
        assert decode("run", again.run_id) != by_hand


def test_random_expiries_agree_with_a_model(world: World) -> None:
    """Of runs with random times, exactly those past theirs expire, whatever was claimed before."""
    chance = random.Random(7)
    due: dict[int, int] = {}
    for _ in range(60):
        wait = chance.randrange(1, 50) * SECOND
        due[world.insert_one(expires_us=wait)] = world.clock.now() + wait
        world.clock.advance(chance.randrange(0, 3) * SECOND)
        if chance.random() < 0.3:
            for held in world.claim(n=1, start=True):
                assert due.pop(held.run_id) > world.clock.now()
                world.complete(held)
        sweeper(world.store).run_once()
        left = {run_id for run_id, at in due.items() if at > world.clock.now()}
        assert {row[0] for row in world.sql("SELECT run_id FROM runs")} == left
        due = {run_id: due[run_id] for run_id in left}


def test_status_counts_expired_runs(shell: Shell) -> None:
    """`status` and `runs list` show them; a submission takes --in and --expires-after."""
    assert " expired, " not in shell.ok("status")
    run_id = shell.submit("hello", "--expires-after", "1ms")
    with connect(shell.url) as client:
        sweeper(client.store).run_once()
    assert "1 expired, " in shell.ok("status")
    assert run_id in shell.ok("runs", "list", "--state", "EXPIRED")
    later = shell.json("runs", "submit", "hello", "--in", "1h", "--expires-after", "2m")
    assert later["waits"] == "later"
    assert later["expires_at"] > later["scheduled_time"]
    assert "expires" in shell.ok("runs", "show", later["run_id"])
    both = shell("runs", "submit", "hello", "--in", "1h", "--at", "2h")
    assert (both.code, "--in" in both.err) == (2, True)
