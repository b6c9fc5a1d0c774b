"""The state of the installation: ticks of services, store, pools, backlogs, checks."""

from __future__ import annotations

import pytest

from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import Forbidden
from penstock.monitoring.system.records import SystemCheck, SystemStatus
from penstock.services.tick_reporter import TickReporter
from tests.kits.client_harness import Harness


class FakeLoop:
    """A loop whose steps are counted by hand."""

    interval_us = SECOND

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0


def check_of(seen: SystemStatus, name: str) -> SystemCheck:
    """Return the check with a name."""
    return next(one for one in seen.checks if one.check == name)


def test_an_idle_installation(harness: Harness) -> None:
    seen = harness.client.views.system()
    assert seen.store.engine == harness.store.capabilities.engine
    assert seen.store.size_bytes > 0
    assert seen.store.schema[:4].isdigit()
    assert (seen.outbox.waiting, seen.services, seen.audit) == (0, [], [])
    workers = check_of(seen, "workers")
    assert (workers.verdict, workers.fix) == ("WARN", "penstock up --pipelines my_pipelines.py")
    assert check_of(seen, "dead letters").verdict == "OK"


def test_the_last_tick_of_services(harness: Harness) -> None:
    """A service that stops making steps becomes late; the others do not."""
    loops = [FakeLoop("scheduler"), FakeLoop("sweeper")]
    reporter = TickReporter(harness.store, loops)
    assert reporter.run_once().next_at == SECOND, "a new process is soon known to be alive"
    for loop in loops:
        loop.steps += 1
    assert reporter.run_once() == (2, None, 0)
    seen = harness.client.views.system()
    assert [(one.service, one.is_late) for one in seen.services] == [
        ("scheduler", False),
        ("sweeper", False),
    ]
    assert {one.ticked_at for one in seen.services} == {seen.as_of}
    assert check_of(seen, "services").verdict == "OK"
    harness.clock.advance(2 * MINUTE)
    loops[1].steps += 1
    assert reporter.run_once().services == 1
    seen = harness.client.views.system()
    assert [one.is_late for one in seen.services] == [True, False]
    late = check_of(seen, "services")
    assert (late.verdict, late.says.partition(":")[0]) == ("WARN", "scheduler")


def test_a_pool_without_workers(harness: Harness) -> None:
    """Runs wait in a pool that no worker serves: the check names the command."""
    harness.submit()
    seen = harness.client.views.system()
    pool = next(one for one in seen.pools if one.ready_runs)
    assert (pool.workers, pool.desired_workers >= 1) == (0, True)
    fix = f"penstock worker --pool {pool.pool} --pipelines my_pipelines.py"
    assert check_of(seen, "pools").fix == fix


def test_a_customer_does_not_see_it(harness: Harness) -> None:
    harness.config(customer="acme")
    with pytest.raises(Forbidden):
        harness.client.scoped("acme").views.system()
