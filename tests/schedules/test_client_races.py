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
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, change_of, config_row, create_config


def race(*calls: Callable[[], Any]) -> list[Any]:
    """Make the calls concurrently; return the result or the Conflict of each."""
    barrier = Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        barrier.wait(60)
        try:
            return call()
        except Conflict as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(one, calls))


def test_one_of_many_starts(harness: Harness) -> None:
    """With overlap `skip`, concurrent starts and a tick create exactly one run each time."""
    config = harness.config()
    scheduler = Scheduler(harness.store, clock=harness.clock)
    for _ in range(5):
        harness.clock.advance(HOUR)
        race(*[lambda: harness.start(config)] * 3, scheduler.run_once)
        assert harness.counts("runs") == {"runs": 1}
        harness.clock.advance(1)
        assert harness.drain() == 1
    assert len(set(harness.occurrences(config.config_id))) == 5


def test_one_of_many_versions(harness: Harness) -> None:
    """One of several changes to the same version succeeds; the audit chain stays valid."""
    config = harness.config()
    results = race(
        *[
            lambda p=p: harness.client.configs.update(
                cfg(config), change_of({"priority": p}), version=1
            )
            for p in range(6, 10)
        ]
    )
    assert sum(isinstance(result, StaleVersion) for result in results) == 3
    assert harness.client.configs.get(cfg(config)).version == 2
    assert harness.write(lambda tx: audit_verify(tx, config.customer_key)) == (2, None)


def test_changes_while_ticking(harness: Harness) -> None:
    """Enabling and disabling during ticks neither repeats an occurrence nor orphans a row."""
    config = harness.config(overlap="allow")
    schedulers = [Scheduler(harness.store, clock=harness.clock) for _ in range(2)]
    for n in range(6):
        harness.clock.advance(HOUR)
        switch = harness.client.configs.enable if n % 2 else harness.client.configs.disable
        race(*[s.run_once for s in schedulers], lambda s=switch: s(cfg(config)))  # type: ignore[misc]
        is_on = harness.client.configs.get(cfg(config)).is_active
        assert is_on == (harness.schedule_row(config.config_id) is not None)
    occurrences = harness.occurrences(config.config_id)
    assert len(occurrences) == len(set(occurrences))


def test_many_creates_of_one_customer(harness: Harness) -> None:
    """Concurrent creation of one customer's configs creates all of them in one audit chain."""
    given = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}

    def create() -> None:
        for _ in range(4):
            create_config(harness.client, "crowd", given)

    race(*[create] * 6)
    configs = harness.client.configs.list(customer="crowd", limit=100).items
    assert len(configs) == 24
    customer = config_row(harness.client, configs[0].config_id).customer_key
    assert harness.write(lambda tx: audit_verify(tx, customer)) == (24, None)


def test_cancel_of_a_blocked_run_while_the_first_ends(harness: Harness) -> None:
    """Cancelling a blocked run and ending the run ahead of it lock in the same order."""
    for _ in range(5):
        front = harness.submit(ordering_key="k")
        behind = harness.submit(ordering_key="k")
        results = race(partial(harness.cancel, behind), harness.drain)
        harness.drain()
        assert harness.run(front).state == "COMPLETED"
        if isinstance(results[0], IllegalTransition):  # the drain ended first
            assert harness.run(behind).state == "COMPLETED"
        else:
            assert results[0] in ("cancelled", "asked")
            assert harness.run(behind).state in ("COMPLETED", "CANCELLED")
