"""Callers racing each other and the tick, on both engines."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

from penstock.core.clock import HOUR
from penstock.core.errors import Conflict, IllegalTransition, StaleVersion
from penstock.schedules.scheduler import Scheduler
from penstock.schedules.store.configs import audit_verify
from tests.kits.desk import Desk


def race(*calls: Callable[[], Any]) -> list[Any]:
    """Make the calls at the same moment; what each answered or raised."""
    gate = Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        gate.wait(30)
        try:
            return call()
        except Conflict as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(one, calls))


def test_one_of_many_starts(desk: Desk) -> None:
    """Under skip, of many starts and a tick at the same moment one run comes about each time."""
    config = desk.config()
    scheduler = Scheduler(desk.store, clock=desk.clock)
    for _ in range(5):
        desk.clock.advance(HOUR)
        race(*[lambda: desk.client.configs.start(config.config_id)] * 3, scheduler.run_once)
        assert desk.counts("runs") == {"runs": 1}
        desk.clock.advance(1)
        assert desk.drain() == 1
    assert len(set(desk.slots(config.config_id))) == 5


def test_one_of_many_versions(desk: Desk) -> None:
    """Of many changes made on the same version one is taken; the chain of the audit holds."""
    config = desk.config()
    answers = race(
        *[
            lambda p=p: desk.client.configs.update(config.config_id, {"priority": p}, version=1)
            for p in range(6, 10)
        ]
    )
    assert sum(isinstance(answer, StaleVersion) for answer in answers) == 3
    assert desk.client.configs.get(config.config_id).version == 2
    assert desk.write(lambda tx: audit_verify(tx, config.customer)) == (2, None)


def test_changes_while_ticking(desk: Desk) -> None:
    """Switching a config while schedulers tick never starts a slot twice nor leaves a ghost."""
    config = desk.config(overlap="allow")
    schedulers = [Scheduler(desk.store, clock=desk.clock) for _ in range(2)]
    for turn in range(6):
        desk.clock.advance(HOUR)
        switch = desk.client.configs.enable if turn % 2 else desk.client.configs.disable
        race(*[s.run_once for s in schedulers], lambda s=switch: s(config.config_id))  # type: ignore[misc]
        is_on = desk.client.configs.get(config.config_id).is_active
        assert is_on == (desk.schedule_row(config.config_id) is not None)
    slots = desk.slots(config.config_id)
    assert len(slots) == len(set(slots))


def test_many_creates_of_one_customer(desk: Desk) -> None:
    """Many configs of one customer created at the same moment all come about, chained."""
    given = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}

    def create() -> None:
        for _ in range(4):
            desk.client.configs.create("crowd", given)

    race(*[create] * 6)
    configs = desk.client.configs.page(customer="crowd", limit=100)
    assert len(configs) == 24
    assert desk.write(lambda tx: audit_verify(tx, configs[0].customer)) == (24, None)


def test_cancel_behind_a_key_while_its_front_ends(desk: Desk) -> None:
    """Cancelling a blocked run and ending the one before it take their locks in one order."""
    for _ in range(5):
        front = desk.submit(ordering_key="k")
        behind = desk.submit(ordering_key="k")
        answers = race(partial(desk.client.runs.cancel, behind), desk.drain)
        desk.drain()
        assert desk.client.runs.get(front).state == "COMPLETED"
        if isinstance(answers[0], IllegalTransition):  # the drain was through before it came
            assert desk.client.runs.get(behind).state == "COMPLETED"
        else:
            assert answers[0] in ("cancelled", "asked")
            assert desk.client.runs.get(behind).state in ("COMPLETED", "CANCELLED")
