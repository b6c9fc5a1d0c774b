"""Backfills: bounded, in order, each partition once, through kills, pauses and failures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.core.clock import DAY
from penstock.core.errors import (
    Conflict,
    IllegalTransition,
    InvalidInput,
    NotFound,
    PermanentError,
)
from penstock.db.store import Store, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.mode import Mode
from penstock.pipelines.partition import PartitionKind, PartitionRule, day, range_of
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.partition_range import partitions_between
from penstock.recovery.records import BackfillRequest
from penstock.schedules.records import Config, StoredConfig
from penstock.services.store import Retention, prune
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from tests.recovery.kit import PHASES, Services, Work


def asked(first: str, last: str, **more: Any) -> BackfillRequest:
    """Return a request for a range of pipeline nba."""
    return BackfillRequest(pipeline="nba", first=first, last=last, **more)


class Killed(BaseException):
    """The end of a process, in the middle of a transaction."""


class KilledStore:
    """A store whose process is killed inside its n-th write."""

    def __init__(self, store: Store, n: int) -> None:
        self._store, self._left = store, n

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, body: Callable[[Tx], Any]) -> Any:
        """Run the body, but never commit the last one."""
        self._left -= 1
        if self._left > 0:
            return self._store.write(body)

        def killed(tx: Tx) -> None:
            body(tx)
            raise Killed

        return self._store.write(killed)


def test_a_year_killed_twice(store: Store, clock: VirtualClock) -> None:
    """Each of 365 partitions is processed exactly once, eight at a time, through two kills."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    client = services.client
    made = client.backfills.start(asked("2025-01-01", "2025-12-31", parallelism=8)).backfill
    assert made is not None
    assert (made.total, made.done, made.state) == (365, 0, "RUNNING")
    most = 0

    def progress() -> Any:
        nonlocal most
        now = client.backfills.get(made.backfill_id)
        most = max(most, now.counts.get("RUNNING", 0))
        return now

    for killed_at in (100, 250):
        services.work(lambda n=killed_at: progress().done >= n)  # type: ignore[misc]
        # A worker that holds runs and a backfiller in the middle of its transaction are killed.
        services.worker.claim_once(50, start=True)
        services.backfiller = type(services.backfiller)(KilledStore(store, 1))
        with pytest.raises(Killed):
            services.backfiller.run_once()
        before = progress()
        services.later()  # the lease of the killed worker expires
        services.later()  # its runs are due again
        services.start()
        assert progress().done == before.done
    services.work()
    done = progress()
    assert (done.state, done.done, done.progress) == ("COMPLETE", 365, 100.0)
    assert done.counts == {"COMPLETE": 365}
    assert most <= 8
    flows = services.flows(pipeline="nba")
    assert len(flows) == len({flow.partition for flow in flows}) == 365
    assert {flow.generation for flow in flows} == {1}
    assert {flow.trigger_source for flow in flows} == {"backfill"}
    assert len(work.seen) == 365 * len(PHASES)
    repeated = {key: n for key, n in work.seen.items() if n > 1}
    assert not repeated, "a run that was claimed and never begun is executed once"


def test_four_backfillers_at_once(store: Store, clock: VirtualClock) -> None:
    """Replicas that start partitions at the same time never exceed the parallelism."""
    services = Services(store, clock, Work().pipeline)
    made = services.client.backfills.start(asked("2025-01-01", "2025-01-31", parallelism=9))
    assert made.backfill is not None
    barrier = threading.Barrier(4)

    def step() -> int:
        barrier.wait(60)
        return Backfiller(store).run_once().opened

    with ThreadPoolExecutor(4) as threads:
        opened = [done.result(60) for done in [threads.submit(step) for _ in range(4)]]
    assert sum(opened) == len(services.flows()) == 9
    assert services.client.backfills.get(made.backfill.backfill_id).counts["RUNNING"] == 9


def test_a_dry_run_shows_what_would_happen(store: Store, clock: VirtualClock) -> None:
    """A dry run changes nothing and shows runs, tables, what is skipped and the duration."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    services.trigger("2025-01-02")
    services.work()
    before = work.seen.copy()
    seen = services.client.backfills.start(asked("2025-01-01", "2025-01-04", is_dry_run=True))
    assert seen.backfill is None
    assert seen.starts == ["2025-01-01", "2025-01-03", "2025-01-04"]
    assert seen.skipped == ["2025-01-02: complete"]
    assert (seen.impact.flows, seen.impact.runs) == (3, 9)
    assert seen.impact.tables == ["raw.games", "analytics.games", "publish.games"]
    kinds = [effect.kind for effect in seen.impact.effects]
    assert kinds == ["starts", "overwrites", "duration", "skips", "slo", "undo"]
    assert "3 of 4 partitions start in mode backfill" in seen.impact.text
    assert "1 is skipped." in seen.impact.text
    (skips,) = [one.text for one in seen.impact.effects if one.kind == "skips"]
    assert skips.startswith("1 partition is skipped: ")
    single = services.client.backfills.start(asked("2025-01-01", "2025-01-01", is_dry_run=True))
    assert "1 of 1 partition starts in mode backfill" in single.impact.text
    assert "0 are skipped." in single.impact.text
    assert seen.impact.command == "penstock backfill nba --from 2025-01-01 --to 2025-01-04"
    assert services.client.backfills.list().items == []
    services.work()
    assert work.seen == before


@pytest.mark.parametrize(
    ("existing", "starts"),
    [
        ("incomplete", ["2025-01-02", "2025-01-04"]),
        ("missing", ["2025-01-04"]),
        ("all", ["2025-01-01", "2025-01-02", "2025-01-04"]),
    ],
)
def test_existing_work(store: Store, clock: VirtualClock, existing: Any, starts: list[str]) -> None:
    """Complete, failed and missing partitions by policy; one in progress is never repeated."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    services.trigger("2025-01-01")
    work.fails = lambda _, day: PermanentError("no") if day == "2025-01-02" else None
    failed = services.trigger("2025-01-02")
    services.work()
    services.client.flows.cancel(failed)
    services.trigger("2025-01-03")
    clock.advance(8 * DAY)
    store.write(lambda tx: prune(tx, Retention()))
    assert {flow.partition for flow in services.flows()} == {"2025-01-03"}
    services.start()
    request = asked("2025-01-01", "2025-01-04", existing=existing)
    made = services.client.backfills.start(request)
    assert made.starts == starts
    assert any(one.startswith("2025-01-03: flow_") for one in made.skipped)
    work.fails = lambda *_: None
    services.work()
    assert made.backfill is not None
    done = services.client.backfills.get(made.backfill.backfill_id)
    assert (done.state, done.counts["COMPLETE"]) == ("COMPLETE", len(starts))


def test_pause_resume_cancel(store: Store, clock: VirtualClock) -> None:
    """A paused backfill starts nothing; a cancelled one cancels its flows; each is journalled."""
    services = Services(store, clock, Work().pipeline)
    client = services.client.as_actor("ann")
    made = client.backfills.start(
        asked("2025-01-01", "2025-01-31", parallelism=2, order="newest", reason="late source")
    ).backfill
    assert made is not None
    name = made.backfill_id
    services.backfiller.run_once()
    running = client.backfills.partitions(name, state="RUNNING").items
    assert [one.partition for one in running] == ["2025-01-31", "2025-01-30"]
    assert client.backfills.pause(name, "busy").state == "PAUSED"
    services.work()
    paused = client.backfills.get(name)
    assert (paused.done, paused.note, paused.eta_at) == (2, "busy", None)
    with pytest.raises(IllegalTransition):
        client.backfills.pause(name)
    clock.advance(DAY)
    services.start()
    assert client.backfills.resume(name, parallelism=3).parallelism == 3
    services.backfiller.run_once()
    assert client.backfills.get(name).counts["RUNNING"] == 3
    assert client.backfills.get(name).eta_at is not None
    done = client.backfills.cancel(name, "wrong range")
    assert (done.state, done.note) == ("CANCELLED", "wrong range")
    services.work()
    states = client.backfills.get(name).counts
    assert states == {"COMPLETE": 2, "CANCELLED": 29}
    with pytest.raises(IllegalTransition):
        client.backfills.cancel(name)
    entries = [(row[0], row[1]) for row in _journal(store, "backfill")]
    assert entries == [
        ("opened", "ann"), ("paused", "ann"), ("resumed", "ann"), ("cancelled", "ann"),
    ]  # fmt: skip
    again = client.backfills.resume(name, again=True)
    assert again.counts == {"COMPLETE": 2, "PENDING": 29}
    services.work()
    assert client.backfills.get(name).state == "COMPLETE"


def _journal(store: Store, kind: str) -> list[Any]:
    text = f"SELECT action, actor FROM journal WHERE kind = '{kind}' ORDER BY seq"
    return store.read(lambda tx: tx._connection.execute(text).fetchall())  # type: ignore[attr-defined]


def test_failures_pause_it_and_can_be_repeated(store: Store, clock: VirtualClock) -> None:
    """After the maximum of failures it is paused with an alert; resuming repeats the failed."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    client = services.client
    work.fails = lambda _, day: PermanentError("bug") if day < "2025-01-04" else None
    request = asked("2025-01-01", "2025-01-06", parallelism=1, failures_max=2)
    made = client.backfills.start(request).backfill
    assert made is not None
    services.work()
    paused = client.backfills.get(made.backfill_id)
    assert (paused.state, paused.counts) == ("PAUSED", {"PENDING": 4, "FAILED": 2})
    assert paused.note == "2 partitions failed, and failures_max is 2"
    (alert,) = (one for one in client.alerts.list().items if one.rule == "backfill_paused")
    assert alert.subject == made.backfill_id
    assert f"penstock backfills resume {made.backfill_id}" in alert.message
    first = client.backfills.partitions(made.backfill_id).items[0]
    assert (first.state, first.note) == ("FAILED", "raw failed")
    work.fails = lambda *_: None
    client.backfills.resume(made.backfill_id, again=True)
    assert "backfill_paused" not in {one.rule for one in client.alerts.list(state="open").items}
    services.work()
    done = client.backfills.get(made.backfill_id)
    assert (done.state, done.counts) == ("COMPLETE", {"COMPLETE": 6})
    tries = client.backfills.partitions(made.backfill_id).items
    assert [one.attempts for one in tries] == [2, 2, 1, 1, 1, 1]


def test_a_failed_partition_does_not_hold_up_others(store: Store, clock: VirtualClock) -> None:
    """A flow that waits for a person frees its share; once it is repaired it counts as complete."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    client = services.client
    work.fails = lambda phase, day: (
        PermanentError("bug") if (phase, day) == ("analytics", "2025-01-01") else None
    )
    made = client.backfills.start(asked("2025-01-01", "2025-01-03", parallelism=1)).backfill
    assert made is not None
    services.work()
    done = client.backfills.get(made.backfill_id)
    assert (done.state, done.counts) == ("FAILED", {"COMPLETE": 2, "FAILED": 1})
    assert done.note == "2 COMPLETE, 1 FAILED"
    work.fails = lambda *_: None
    (dead,) = client.dead_letters.list().items
    client.dead_letters.replay(dead.dead_letter_id)
    services.work()
    client.backfills.resume(made.backfill_id, again=True)
    services.work()
    done = client.backfills.get(made.backfill_id)
    assert (done.state, done.counts["COMPLETE"]) == ("COMPLETE", 3)
    assert work.seen["analytics", "2025-01-01"] == 2


def started_by(services: Services, request: BackfillRequest) -> list[str]:
    """Start a backfill, work until it ends, and return the partitions whose flows it opened."""
    before = {flow.flow_id for flow in services.flows()}
    services.client.backfills.start(request)
    services.work()
    return sorted(flow.partition for flow in services.flows() if flow.flow_id not in before)


def test_a_config_skips_only_its_own_work(store: Store, clock: VirtualClock) -> None:
    """What another config of the customer completed is not complete, nor is what its log has."""
    services = Services(store, clock, Work().pipeline)
    client = services.client
    aws, gcp = (
        client.configs.create("acme", Config(pipeline="nba", cron="0 2 * * *", provider=name))
        for name in ("AWS", "GCP")
    )
    for day_, config in (("2025-01-01", aws), ("2025-01-02", gcp)):
        services.trigger(day_, customer="acme", config=config.config_id)
    services.work()

    def starts(config: StoredConfig, existing: Any) -> list[str]:
        request = asked("2025-01-01", "2025-01-02", customer="acme", config=config.config_id,
                        existing=existing, is_dry_run=True)  # fmt: skip
        return client.backfills.start(request).starts

    for _ in range(2):
        for existing in ("incomplete", "missing"):
            assert starts(aws, existing) == ["2025-01-02"]
            assert starts(gcp, existing) == ["2025-01-01"]
        clock.advance(8 * DAY)
        store.write(lambda tx: prune(tx, Retention()))
        assert services.flows() == [], "the second round reads the log of phases"
    services.start()
    request = asked("2025-01-01", "2025-01-02", customer="acme", config=aws.config_id)
    assert started_by(services, request) == ["2025-01-02"]


@pytest.mark.parametrize(("configs", "starts"), [(1, []), (2, ["2025-01-01"])])
def test_log_of_an_earlier_release(
    store: Store, clock: VirtualClock, configs: int, starts: list[str]
) -> None:
    """Logged phases without a config count for the only config a customer ever had."""
    services = Services(store, clock, Work().pipeline)
    made = [
        services.client.configs.create(
            "acme", Config(pipeline="nba", cron=f"0 {hour} * * *", provider=str(hour))
        )
        for hour in range(configs)
    ]
    services.trigger("2025-01-01", customer="acme", config=made[0].config_id)
    services.work()
    text = "UPDATE phase_completion_log SET config_id = NULL"
    store.write(lambda tx: tx._connection.execute(text))  # type: ignore[attr-defined]
    clock.advance(8 * DAY)
    store.write(lambda tx: prune(tx, Retention()))
    if configs > 1:
        services.client.configs.delete(made[1].config_id)
    request = asked("2025-01-01", "2025-01-01", customer="acme", config=made[0].config_id,
                    is_dry_run=True)  # fmt: skip
    assert services.client.backfills.start(request).starts == starts


def test_a_partial_flow_is_not_complete(store: Store, clock: VirtualClock) -> None:
    """A flow that ended before the backfill's final phases is repeated."""
    work = Work(modes=[Mode("early", until="analytics"), Mode("daily")])
    services = Services(store, clock, work.pipeline)
    services.trigger("2025-01-01", no_downstream=True)
    services.trigger("2025-01-02", mode="early")
    services.trigger("2025-01-03", mode="daily")
    services.work()
    assert {flow.state for flow in services.flows()} == {"COMPLETE"}
    days = ("2025-01-01", "2025-01-03")
    seen = services.client.backfills.start(asked(*days, is_dry_run=True))
    assert seen.skipped == ["2025-01-03: complete"]
    alone: dict[str, Any] = {"phases": ["raw"], "no_downstream": True, "is_dry_run": True}
    assert services.client.backfills.start(asked(*days, **alone)).starts == []
    assert started_by(services, asked(*days)) == ["2025-01-01", "2025-01-02"]
    assert started_by(services, asked(*days)) == []
    assert work.seen["publish", "2025-01-01"] == work.seen["publish", "2025-01-02"] == 1


def test_phases_and_no_downstream(store: Store, clock: VirtualClock) -> None:
    """A backfill of one phase inherits the earlier ones and starts no later ones."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    services.trigger("2025-01-01", mode="backfill")
    services.work()
    work.seen.clear()
    request = asked("2025-01-01", "2025-01-01", phases=["analytics"], existing="all",
                    no_downstream=True)  # fmt: skip
    made = services.client.backfills.start(request)
    assert (made.impact.runs, made.impact.tables) == (1, ["analytics.games"])
    services.work()
    assert work.seen == {("analytics", "2025-01-01"): 1}


def test_one_pass(store: Store, clock: VirtualClock) -> None:
    """A single flow processes the range; its processors see both ends."""
    seen: list[Any] = []
    pipeline = Pipeline("nba", partition=day("game_date"))

    raw = pipeline.phase("raw")

    @raw.processor("raw_it")
    def raw_it(run: RunContext) -> None:
        seen.append((run.partition, run.partition_range))

    pipeline.phase("publish", after=raw).external("publish_it")

    services = Services(store, clock, pipeline)
    request = asked("2025-01-01", "2025-01-31", one_pass=True, phases=["raw"], no_downstream=True)
    made = services.client.backfills.start(request)
    assert (made.impact.flows, made.impact.runs) == (1, 1)
    assert made.impact.command.endswith("--one-pass")
    assert made.backfill is not None
    assert (made.backfill.one_pass, made.backfill.total) == (True, 1)
    services.work()
    done = services.client.backfills.get(made.backfill.backfill_id)
    assert (done.state, done.counts) == ("COMPLETE", {"COMPLETE": 1})
    assert seen == [("2025-01-01..2025-01-31", ("2025-01-01", "2025-01-31"))]
    services.trigger("2025-01-07")
    with pytest.raises(Conflict, match="2025-01-07"):
        services.client.backfills.start(request)


def test_refused(store: Store, clock: VirtualClock) -> None:
    """Ranges that cannot be, and unknown backfills, name the field and the fix."""
    services = Services(store, clock, Work().pipeline)
    start = services.client.backfills.start
    with pytest.raises(InvalidInput, match="last: expected 2025-01-05 or later"):
        start(asked("2025-01-05", "2025-01-01"))
    with pytest.raises(InvalidInput, match="first: expected a day"):
        start(asked("2025-13-01", "2025-12-01"))
    fix = r"Name a range \(--from … --to …\), or partitions \(--partition …\)\.$"
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "first: expected a range or a list of partitions, got nothing"),
        ({"first": "2025-01-01", "partitions": ["2025-01-01"]}, "got 'both'"),
        ({"first": "2025-01-01"}, "last: expected the end of the range, too, got nothing"),
        ({"last": "2025-01-01"}, "first: expected the start of the range, too, got nothing"),
    ]
    for given, text in cases:
        with pytest.raises(InvalidInput, match=rf"{text}\. {fix}"):
            start(BackfillRequest(pipeline="nba", **given))
    with pytest.raises(InvalidInput, match="phases of nba"):
        start(asked("2025-01-01", "2025-01-02", phases=["unknown"]))
    with pytest.raises(NotFound):
        services.client.backfills.get("bf_00000000")


def test_ranges() -> None:
    """Days, hours, weeks and months are enumerated across the ends of months and years."""

    def between(kind: PartitionKind, first: str, last: str) -> list[str]:
        return partitions_between(PartitionRule(kind=kind), first, last)

    assert between(PartitionKind.DAY, "2024-02-28", "2024-03-01") == [
        "2024-02-28", "2024-02-29", "2024-03-01",
    ]  # fmt: skip
    assert between(PartitionKind.HOUR, "2025-12-31T22", "2026-01-01T00") == [
        "2025-12-31T22", "2025-12-31T23", "2026-01-01T00",
    ]  # fmt: skip
    assert between(PartitionKind.WEEK, "2020-W52", "2021-W01") == [
        "2020-W52", "2020-W53", "2021-W01",
    ]  # fmt: skip
    assert between(PartitionKind.MONTH, "2025-11", "2026-01") == ["2025-11", "2025-12", "2026-01"]
    assert range_of("2025-11..2026-01") == ("2025-11", "2026-01")
    assert range_of("2025-11..2026-01-01") is range_of("a..b") is range_of("2025-11") is None
    with pytest.raises(InvalidInput, match="List its partitions"):
        between(PartitionKind.TEXT, "a", "b")
