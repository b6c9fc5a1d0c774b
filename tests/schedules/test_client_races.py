"""Races between callers and with the scheduler, on both engines."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

from penstock.core.clock import HOUR
from penstock.core.errors import Conflict, IllegalTransition, StaleVersion
from penstock.schedules.scheduler import Scheduler
from penstock.schedules.store.configs import audit_verify
from tests.kits.desk import Harness


def race(*calls: Callable[[], Any]) -> list[Any]:
    """Make the calls concurrently; return the result or the Conflict of each."""
    barrier = Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        barrier.wait(30)
        try:
            return call()
        except Conflict as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(one, calls))


def test_one_of_many_starts(desk: Harness) -> None:
    """With overlap `skip`, concurrent starts and a tick create exactly one run each time."""
    config = desk.config()
    scheduler = Scheduler(desk.store, clock=desk.clock)
    for _ in range(5):
        desk.clock.advance(HOUR)
        race(*[lambda: desk.client.configs.start(config.config_id)] * 3, scheduler.run_once)
        assert desk.counts("runs") == {"runs": 1}
        desk.clock.advance(1)
        assert desk.drain() == 1
    assert len(set(desk.occurrences(config.config_id))) == 5


def test_one_of_many_versions(desk: Harness) -> None:
    """One of several changes to the same version succeeds; the audit chain stays valid."""
    config = desk.config()
    results = race(
        *[
            lambda p=p: desk.client.configs.update(config.config_id, {"priority": p}, version=1)
            for p in range(6, 10)
        ]
    )
    assert sum(isinstance(result, StaleVersion) for result in results) == 3
    assert desk.client.configs.get(config.config_id).version == 2
    assert desk.write(lambda tx: audit_verify(tx, config.customer_key)) == (2, None)


def test_changes_while_ticking(desk: Harness) -> None:
    """Enabling and disabling during ticks neither repeats an occurrence nor orphans a row."""
    config = desk.config(overlap="allow")
    schedulers = [Scheduler(desk.store, clock=desk.clock) for _ in range(2)]
    for n in range(6):
        desk.clock.advance(HOUR)
        switch = desk.client.configs.enable if n % 2 else desk.client.configs.disable
        race(*[s.run_once for s in schedulers], lambda s=switch: s(config.config_id))  # type: ignore[misc]
        is_on = desk.client.configs.get(config.config_id).is_active
        assert is_on == (desk.schedule_row(config.config_id) is not None)
    occurrences = desk.occurrences(config.config_id)
    assert len(occurrences) == len(set(occurrences))


def test_many_creates_of_one_customer(desk: Harness) -> None:
    """Concurrent creation of one customer's configs creates all of them in one audit chain."""
    given = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}

    def create() -> None:
        for _ in range(4):
            desk.client.configs.create("crowd", given)

    race(*[create] * 6)
    configs = desk.client.configs.page(customer="crowd", limit=100)
    assert len(configs) == 24
    assert desk.write(lambda tx: audit_verify(tx, configs[0].customer_key)) == (24, None)


def test_cancel_of_a_blocked_run_while_the_first_ends(desk: Harness) -> None:
    """Cancelling a blocked run and ending the run ahead of it lock in the same order."""
    for _ in range(5):
        front = desk.submit(ordering_key="k")
        behind = desk.submit(ordering_key="k")
        results = race(partial(desk.client.runs.cancel, behind), desk.drain)
        desk.drain()
        assert desk.client.runs.get(front).state == "COMPLETED"
        if isinstance(results[0], IllegalTransition):  # the drain ended first
            assert desk.client.runs.get(behind).state == "COMPLETED"
        else:
            assert results[0] in ("cancelled", "asked")
            assert desk.client.runs.get(behind).state in ("COMPLETED", "CANCELLED")
