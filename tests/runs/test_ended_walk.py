"""Lists of ended runs by filters without an index: few rows are visited, and no run is missed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.analytics.aggregator import Aggregator
from penstock.core.clock import HOUR, MINUTE
from penstock.core.ids import encode
from penstock.runs.store.lists import ended_walk
from penstock.runs.store.lists import pages as lists
from tests.kits.client_harness import Harness
from tests.kits.plans import plan_of

OTHERS = 40


@pytest.fixture
def rare(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of another processor failed; then many others ended, one in each half hour."""
    for module, name, value in (
        (ended_walk, "WINDOW_ROWS", 4), (ended_walk, "VISITED_MAX", 8),
        (lists, "VISITED_FIRST", 4), (lists, "VISITED_MAX", 8),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    made = harness.submit(pipeline="pair", processor="left")
    harness.fail(harness.take())
    for _ in range(OTHERS):
        harness.clock.advance(30 * MINUTE)
        harness.submit()
        harness.complete(harness.take())
    harness.clock.advance(HOUR)
    return encode("run", made)


FILTERS: list[dict[str, Any]] = [
    {"pipeline": "pair"},
    {"processor": "left"},
    {"state": "FAILED"},
    {"state": "FAILED", "pipeline": "pair"},
    {"error_type": "VALIDATION_ERROR"},
    {"error_type": "VALIDATION_ERROR", "processor": "entry.left"},
    {"customer": "acme", "pipeline": "pair"},
    {"customer": "acme", "error_type": "VALIDATION_ERROR"},
]


def pages(harness: Harness, filters: dict[str, Any]) -> list[list[str]]:
    """Return the runs of every page."""
    found, cursor = [], None
    while True:
        page = harness.client.runs.list(**filters, cursor=cursor, limit=3)
        found.append([run.run_id for run in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert len(found) < OTHERS, "every page gets further"


@pytest.mark.parametrize("filters", FILTERS)
def test_a_page_ends_early_and_the_next_one_goes_on(
    harness: Harness, rare: str, filters: dict[str, Any]
) -> None:
    """Each page visits a bounded number of runs; together they find the run, once."""
    found = pages(harness, filters)
    assert len(found) > 2
    assert [run for page in found for run in page] == [rare]


@pytest.mark.parametrize("filters", FILTERS[:6])
def test_counters_lead_to_the_run(harness: Harness, rare: str, filters: dict[str, Any]) -> None:
    """Once the runs are counted, the time in which no such run ended is skipped."""
    Aggregator(harness.store).run_once()
    assert pages(harness, filters) == [[rare]]
    absent = {"state": "CANCELLED", "pipeline": filters.get("pipeline")}
    assert pages(harness, absent) == [[]]


@pytest.mark.usefixtures("rare")
def test_runs_that_ended_at_one_time(harness: Harness) -> None:
    """A second with more runs than a window has is read whole, and continued by id."""
    made = [harness.submit() for _ in range(20)]
    harness.complete(*harness.claim())
    cursor: str | None = None
    seen: list[str] = []
    while len(seen) < len(made):
        page = harness.client.runs.list(state="COMPLETED", limit=3, cursor=cursor)
        seen += [run.run_id for run in page.items]
        cursor = page.next_cursor
    assert seen[: len(made)] == [encode("run", number) for number in reversed(made)]


@pytest.mark.usefixtures("rare")
def test_order_and_a_start_after_a_run(harness: Harness) -> None:
    """Filtered runs of all customers are in the order of their end, from any of them on."""
    ended = [run for page in pages(harness, {"state": "COMPLETED"}) for run in page]
    assert len(ended) == OTHERS
    times = [harness.client.runs.get(run).finished_at for run in ended]
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]
    after = harness.client.runs.list(state="COMPLETED", before=ended[3], limit=2)
    assert [run.run_id for run in after.items] == ended[4:6]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("run_list_ended_time", {"sqlite": "history_by_end", "postgres": "finished_at"}),
        (
            "run_list_ended_customer",
            {"sqlite": "history_for_customer", "postgres": "customer_slot"},
        ),
        ("run_window_customer", {"sqlite": "history_for_customer", "postgres": "customer_slot"}),
        ("run_quarter_any", dict.fromkeys(("sqlite", "postgres"), "run_counts_of_processor")),
        ("run_quarter_completed", dict.fromkeys(("sqlite", "postgres"), "run_counts_of_processor")),
        ("run_quarter_failed", dict.fromkeys(("sqlite", "postgres"), "run_counts_failed")),
        ("run_quarter_cancelled", dict.fromkeys(("sqlite", "postgres"), "run_counts_cancelled")),
        ("run_quarter_first", dict.fromkeys(("sqlite", "postgres"), "run_counts")),
    ],
)
def test_windows_and_counters_are_read_by_index(
    harness: Harness, name: str, index: dict[str, str]
) -> None:
    """No statement of the walk reads the whole history or all counters."""
    far = dict.fromkeys(("before", "ended_to", "occurrence_to", "ended_before", "limit"), 2**40)
    shown = plan_of(
        harness.store, name, **far, occurrence_before=2**40, ended_from=0, occurrence_from=0,
        customer=1, visited=10, offset=0, now=0,
    )  # fmt: skip
    assert index[harness.store.capabilities.engine] in shown, shown
    assert "Seq Scan on history" not in shown, shown
