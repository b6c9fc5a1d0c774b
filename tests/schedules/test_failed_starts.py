"""What counts as a failed start of a config: each occurrence once, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.access.store import registry
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.core.ids import encode
from penstock.db.store import Store, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import day
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import BackfillRequest
from penstock.runs.attempt_result import AttemptFailure, completed_result, failed
from penstock.runs.rows import HeldRun
from penstock.runs.store import runs
from penstock.runs.store.finish import run_end_many
from penstock.schedules.rows import ConfigRow
from penstock.schedules.scheduler import Scheduler
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, create_config
from tests.kits.flows import Stage, chain, work

NIGHTLY = {"pipeline_template": "nba", "schedule_cron": "0 2 * * *", "overlap": "allow"}


def wide(**terms: Any) -> Pipeline:
    """One phase of five processors."""
    made = Pipeline("nba", partition=day("day", repeats=True), warehouse="w")
    phase = made.phase("raw", **terms)
    for n in range(5):
        phase.processor(f"p{n}")(work)
    return made


class Nights:
    """A stage whose scheduler starts a config every night."""

    def __init__(
        self, store: Store, clock: VirtualClock, pipeline: Pipeline, every: int = DAY, **more: Any
    ) -> None:
        self.every = every
        self.stage = Stage(store, clock, pipeline)
        self.scheduler = Scheduler(store, clock=clock)
        self.config = create_config(self.stage.client, "acme", {**NIGHTLY, **more})
        clock.advance(DAY + 2 * HOUR + MINUTE - clock.now() % DAY)

    def night(self) -> None:
        """The next occurrence starts."""
        self.stage.clock.advance(self.every - MINUTE)
        assert self.scheduler.run_once().due == 1
        self.stage.clock.advance(MINUTE)  # past the jitter of starts
        self.stage.step()

    @property
    def failures(self) -> int:
        return self.stage.client.configs.get(cfg(self.config)).consecutive_failures

    @property
    def is_active(self) -> bool:
        return self.stage.client.configs.get(cfg(self.config)).is_active

    def alerts(self) -> list[str]:
        """Rules of the open alerts about the config."""
        found = self.stage.client.alerts.list(state="open").items
        return [one.rule for one in found if one.rule.startswith("config_")]


def claimed(stage: Stage) -> list[HeldRun]:
    """Claim everything that is ready, also several runs of one processor."""
    stage.admitter.run_once()
    processors = stage.store.read(registry.processor_list)
    claim = runs.Claim(
        pool_key=processors[0].pool_key, processors=[row.processor_key for row in processors],
        n=100, start=True, claimed_by="t",
    )  # fmt: skip
    return stage.write(lambda tx: runs.run_claim(tx, claim))


def die(tx: Tx, held: HeldRun) -> int:
    """End a claimed run as dead."""
    failure = AttemptFailure(error_type="VALIDATION_ERROR")
    return len(run_end_many(tx, [failed(held, failure, jitter=0.0)]))


def test_every_night_fails_after_a_good_phase(store: Store, clock: VirtualClock) -> None:
    """Runs of an earlier phase that complete do not hide the failures: 3 alert, 5 disable."""
    nights = Nights(store, clock, chain("raw", "analytics"))
    seen = []
    for _ in range(5):
        nights.night()
        nights.stage.complete("raw_job")
        nights.stage.step()
        assert nights.stage.kill("analytics_job") == 1
        nights.stage.step()
        seen.append((nights.failures, nights.alerts()))
    assert seen == [
        (1, []), (2, []), (3, ["config_failing"]), (4, ["config_failing"]),
        (5, ["config_disabled"]),
    ]  # fmt: skip
    assert not nights.is_active


def test_one_night_counts_once(store: Store, clock: VirtualClock) -> None:
    """All five processors of a phase die, in one transaction or in five: one failed start."""
    nights = Nights(store, clock, wide())
    nights.night()
    assert nights.stage.kill() == 5
    assert (nights.failures, nights.is_active) == (1, True)
    nights.night()
    for n in range(5):
        assert nights.stage.kill(f"p{n}") == 1
    assert (nights.failures, nights.alerts()) == (2, [])


@pytest.mark.parametrize("size", [1, 4, 10])
def test_nights_that_overlap(store: Store, clock: VirtualClock, size: int) -> None:
    """The runs of two open flows die mixed: never more than one failed start each."""
    nights = Nights(store, clock, wide(), 12 * HOUR, schedule_cron="0 2,14 * * *")
    for _ in range(2):
        nights.night()
    held = claimed(nights.stage)
    assert len({one.flow_id for one in held}) == 2
    mixed = sorted(held, key=lambda one: one.processor_key)
    for at in range(0, len(mixed), size):
        failure = AttemptFailure(error_type="VALIDATION_ERROR")
        ends = [failed(one, failure, jitter=0.0) for one in mixed[at : at + size]]
        nights.stage.write(lambda tx, batch=ends: run_end_many(tx, batch))  # type: ignore[misc]
    assert nights.failures in (1, 2)
    assert nights.is_active


def test_a_backfill_counts_nothing(store: Store, clock: VirtualClock) -> None:
    """Five bad old partitions say nothing about the schedule, and good ones neither."""
    nights = Nights(store, clock, chain("raw", "analytics"))
    nights.night()
    nights.stage.kill("raw_job")
    asked = BackfillRequest(
        pipeline="nba", customer="acme", first="2025-01-01", last="2025-01-05", parallelism=5
    )
    nights.stage.client.backfills.start(asked)
    backfiller = Backfiller(store)
    backfiller.run_once()
    nights.stage.step()
    held = nights.stage.claim("raw_job")
    assert held
    nights.stage.end(held["raw_job"])
    nights.stage.step()
    assert nights.failures == 1
    nights.stage.kill()
    assert (nights.failures, nights.is_active, nights.alerts()) == (1, True, [])


def test_a_flow_that_ends_well_resets(store: Store, clock: VirtualClock) -> None:
    """Its runs do not, but its end does: also after a retry by hand that counts nothing itself."""
    nights = Nights(store, clock, chain("raw", "analytics"))
    nights.night()
    assert nights.stage.kill("raw_job") == 1
    nights.night()
    nights.stage.complete("raw_job")
    nights.stage.step()
    held = nights.stage.claim("analytics_job")["analytics_job"]
    nights.stage.write(lambda tx: die(tx, held))
    assert nights.failures == 2
    for is_good in (False, True):
        nights.stage.client.runs.retry(encode("run", held.run_id))
        if is_good:
            nights.stage.complete("analytics_job")
            nights.stage.step()
            break
        held = nights.stage.claim("analytics_job")["analytics_job"]
        nights.stage.write(lambda tx, one=held: die(tx, one))  # type: ignore[misc]
        assert nights.failures == 2
    assert nights.failures == 0


def test_a_degraded_flow_resets(store: Store, clock: VirtualClock) -> None:
    """A start that ends without all its processors, as its phase allows, is a success."""
    nights = Nights(store, clock, wide(stragglers="20m"))
    nights.night()
    nights.stage.kill("p0")
    assert nights.failures == 1
    nights.stage.complete()
    nights.stage.clock.advance(HOUR)
    nights.stage.step()
    assert nights.stage.client.flows.list().items[0].state == "DEGRADED"
    assert nights.failures == 0


def test_other_flows_of_the_config(store: Store, clock: VirtualClock) -> None:
    """A start by hand neither counts nor resets, and neither does a cancelled flow."""
    nights = Nights(store, clock, chain("raw", "analytics"))
    nights.night()
    nights.stage.kill()
    assert nights.failures == 1
    for is_good in (False, True):
        nights.stage.client.configs.start(cfg(nights.config))
        assert (nights.stage.complete() if is_good else nights.stage.kill()) == 1
        nights.stage.run_off()
        assert nights.failures == 1
    states = [one.state for one in nights.stage.client.flows.list().items]
    assert sorted(states) == ["COMPLETE", "OPEN", "OPEN"]
    nights.night()
    newest = nights.stage.client.flows.list().items[0]
    nights.stage.client.flows.cancel(newest.flow_id, reason="test")
    assert nights.failures == 1


def occurrence(harness: Harness) -> None:
    """The next occurrence starts, exactly on time."""
    harness.clock.advance(HOUR - harness.clock.now() % HOUR)
    assert harness.tick().runs == 1


@pytest.fixture
def hourly(harness: Harness) -> ConfigRow:
    """A config of one processor with two attempts, whose last occurrence failed."""
    config = harness.config(retry_config={"max_attempts": 2})
    occurrence(harness)
    harness.fail(harness.take())
    return config


def attempts(harness: Harness) -> None:
    """Let both attempts of a run fail."""
    harness.fail(harness.take(), error_type="TRANSIENT_NETWORK")
    harness.clock.advance(10 * MINUTE)
    harness.admitter.run_once()
    (ended,) = harness.fail(harness.take(), error_type="TRANSIENT_NETWORK")
    assert ended.is_dead


def count(harness: Harness, config: ConfigRow) -> int:
    return harness.client.configs.get(cfg(config)).consecutive_failures


def test_all_attempts_of_an_occurrence_count_once(harness: Harness, hourly: ConfigRow) -> None:
    """Without a flow, the last attempt counts, and a later success resets."""
    occurrence(harness)
    attempts(harness)
    assert count(harness, hourly) == 2
    occurrence(harness)
    harness.complete(harness.take())
    assert count(harness, hourly) == 0


def test_starts_by_hand_do_not_count(harness: Harness, hourly: ConfigRow) -> None:
    """Neither their attempts nor their success."""
    harness.start(hourly)
    attempts(harness)
    assert count(harness, hourly) == 1
    harness.start(hourly)
    harness.complete(harness.take())
    assert count(harness, hourly) == 1


def test_a_retry_by_hand(harness: Harness, hourly: ConfigRow) -> None:
    """It belongs to an occurrence that was counted; if it completes, the occurrence has."""
    (dead,) = harness.client.dead_letters.list().items
    run_id = dead.run_id
    harness.client.runs.retry(str(run_id))
    attempts(harness)
    assert count(harness, hourly) == 1
    newest = harness.client.dead_letters.list().items[0].run_id
    harness.client.runs.retry(str(newest))
    harness.complete(harness.take())
    assert count(harness, hourly) == 0


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_an_end_reads_no_history(harness: Harness) -> None:
    """A transaction that ends a run locks one partition of history, however many there are."""
    harness.sql("SELECT ensure_partitions(CAST(extract(epoch FROM now()) * 1000000 AS bigint), 8)")
    harness.config()
    occurrence(harness)
    held = harness.take()
    locked = (
        "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
        "WHERE l.pid = pg_backend_pid() AND c.relkind = 'r' AND c.relname LIKE 'history\\_%'"
    )

    def end(tx: Tx) -> int:
        run_end_many(tx, [completed_result(held)])
        return int(tx._connection.execute(locked).fetchone()[0])  # type: ignore[attr-defined]

    assert harness.store.write(end) == 1
