"""Exactly one trigger: many completions, each reported three times, several orchestrators."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import Pipeline, game_day_modes
from penstock.client import Client
from penstock.db.store import Store
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import CompletionReport
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.kits.effort import effort
from tests.kits.flows import DAY, Stage, work

WIDE = 100
REPORTS_EACH = 3
ORCHESTRATORS = 4


def wide() -> Pipeline:
    """A phase of a hundred external processors, then a phase of two built-in ones."""
    made = Pipeline("wide", partition="day", modes=game_day_modes())
    raw = made.phase("raw")
    for n in range(WIDE):
        raw.external(f"p{n}")
    after = made.phase("after", after=raw)
    after.processor("left")(work)
    after.processor("right")(work)
    return made


@pytest.mark.parametrize("seed", range(effort(1, 3)))
def test_a_hundred_completions_reported_three_times(
    store: Store, open_store: OpenStore, clock: VirtualClock, seed: int
) -> None:
    """Under any race the next phase starts once and its runs are created once."""
    stage = Stage(store, clock, wide())
    opened = stage.open("wide")
    reports = [
        CompletionReport(
            pipeline="wide", processor=f"p{n}", partition=DAY, customer="acme", mode="same_day",
            execution_id=f"e{n}",
        )
        for n in range(WIDE)
        for _ in range(REPORTS_EACH)
    ]  # fmt: skip
    random.Random(seed).shuffle(reports)
    reported = threading.Event()
    stores = [open_store() for _ in range(ORCHESTRATORS)]

    def orchestrate(n: int) -> int:
        service, triggers = Orchestrator(stores[n], holder=f"o{n}", batch=7), 0
        while True:
            last = reported.is_set()
            triggers += service.run_once().triggers
            if last:
                return triggers

    client = Client(store, actor="outside")
    report: Callable[[CompletionReport], object] = client.flows.complete
    with ThreadPoolExecutor(ORCHESTRATORS) as orchestrators, ThreadPoolExecutor(8) as reporters:
        working = [orchestrators.submit(orchestrate, n) for n in range(ORCHESTRATORS)]
        for done in [reporters.submit(report, one) for one in reports]:
            done.result()
        reported.set()
        triggers = sum(one.result() for one in working)
    assert triggers == 1
    starts = [row[1:] for row in stage.triggers()]
    assert starts == [("after", "", 2), ("raw", "", WIDE)]
    flow = opened.flow.flow_id
    found = stage.sql(f"SELECT count(*) FROM completions WHERE flow_id = {flow}")
    assert found == [(WIDE,)]
    live = stage.sql("SELECT trigger_source, count(*) FROM runs GROUP BY 1")
    assert live == [("orchestrator", 2)]
    assert stage.sql("SELECT count(*) FROM flows") == [(1,)]
    assert stage.sql("SELECT count(*) FROM nudges") == [(0,)]
