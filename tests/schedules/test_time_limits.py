"""Time limits of runs that a config starts: the stricter of processor and config, both engines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Pipeline
from penstock.core.clock import HOUR, MINUTE
from penstock.db.store import Store
from penstock.schedules.records import Config
from penstock.schedules.scheduler import Scheduler
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work

CASES = [
    ("5m", None, 5),
    ("6h", None, 360),
    ("5m", 120, 5),
    ("6h", 120, 120),
    (None, 120, 120),
    (None, None, 60),
]


def declared(kind: str, timeout: str | None) -> Pipeline:
    """Return a pipeline with one processor, or with a flow."""
    made = Pipeline("limited")
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    first = made.phase("first")
    first.processor("a", **options)(work)
    if kind == "flow":
        made.phase("second", after=first).processor("b", **options)(work)
    return made


@pytest.mark.parametrize("kind", ["single", "flow"])
@pytest.mark.parametrize("how", ["schedule", "start"])
@pytest.mark.parametrize(("timeout", "minutes", "expected"), CASES)
def test_the_stricter_declaration_wins(
    store: Store,
    clock: VirtualClock,
    kind: str,
    how: str,
    timeout: str | None,
    minutes: int | None,
    expected: int,
) -> None:
    """Only what is declared counts: the default of an hour limits no longer declaration."""
    stage = Stage(store, clock, declared(kind, timeout))
    most = None if minutes is None else timedelta(minutes=minutes)
    config = Config(pipeline="limited", cron="0 * * * *", max_duration=most)
    made = stage.client.configs.create("acme", config)
    assert (made.max_duration is None) is (minutes is None)
    if how == "schedule":
        clock.advance(HOUR)
        Scheduler(store, clock=clock).run_once()
    else:
        stage.client.configs.start(made.config_id)
    for _ in range(2 if kind == "flow" else 1):
        assert stage.sql("SELECT max_execution_us FROM runs") == [(expected * MINUTE,)]
        stage.complete()
        stage.step()
