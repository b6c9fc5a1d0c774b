"""Lists of dead letters visit few rows, whichever filter is given, and miss none."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dead_letters import store as subject
from tests.kits.client_harness import Harness
from tests.kits.plans import plan_of

OTHERS = 30


@pytest.fixture
def rare(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> str:
    """One run of a partition died; then many others did."""
    monkeypatch.setattr(subject, "VISITED_FIRST", 4)
    monkeypatch.setattr(subject, "VISITED_MAX", 8)
    harness.dead_run(pipeline="pair", processor="left", partition="2025-12-31")
    (one,) = harness.client.dead_letters.list().items
    for _ in range(OTHERS):
        harness.dead_run()
    return one.dead_letter_id


def pages(harness: Harness, **filters: Any) -> list[list[str]]:
    """Return the dead letters of every page."""
    found, cursor = [], None
    while True:
        page = harness.client.dead_letters.list(**filters, cursor=cursor, limit=5)
        found.append([one.dead_letter_id for one in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert len(found) < OTHERS, "every page gets further"


@pytest.mark.parametrize(
    "filters",
    [
        {"partition": "2025-12-31"},
        {"partition": "2025-12-31", "customer": "acme"},
        {"partition": "2025-12-31", "error_type": "VALIDATION_ERROR"},
        {"pipeline": "pair", "kind": "run", "status": "all"},
    ],
)
def test_a_page_ends_early_and_the_next_one_goes_on(
    harness: Harness, rare: str, filters: dict[str, Any]
) -> None:
    """Each page visits a bounded number of dead letters; together they find the one."""
    found = pages(harness, **filters)
    assert len(found) > 2
    assert [one for page in found for one in page] == [rare]
    whole = harness.store.read(
        lambda tx: subject.dead_letter_find(
            tx, subject.DeadLetterRowFilter(partition="2025-12-31"), limit=5
        )
    )
    assert len(whole) == 1, "a replay reads on until it has as many as it wants"


def test_filters_with_an_index(harness: Harness, rare: str) -> None:
    """A processor, an error, a customer and the status alone are exact, also their counts."""
    inbox = harness.client.dead_letters
    assert pages(harness, processor="left") == [[rare]]
    assert pages(harness, pipeline="pair", processor="left") == [[rare]]
    for filters in ({}, {"customer": "acme"}, {"error_type": "VALIDATION_ERROR"}):
        found = [one for page in pages(harness, **filters) for one in page]
        assert len(set(found)) == len(found) == OTHERS + 1
        assert inbox.count(**filters) == OTHERS + 1  # type: ignore[arg-type]
        (first, _) = inbox.groups(**filters)  # type: ignore[arg-type]
        assert first.count == OTHERS
    assert inbox.count(processor="left") == 1
    assert inbox.count(processor="left", error_type="VALIDATION_ERROR") == 1
    assert pages(harness, processor="left", error_type="VALIDATION_ERROR") == [[rare]]
    assert inbox.count(group="run/pair/entry/left/VALIDATION_ERROR") == 1
    assert pages(harness, group="run/pair/entry/left/VALIDATION_ERROR") == [[rare]]
    assert inbox.count(partition="2025-12-31") == 0, "of the newest only"
    assert inbox.count(status="replayed") == 0
    assert inbox.count(pipeline="none") == 0


@pytest.mark.parametrize(
    "name",
    ["dead_letter_find", "dead_letter_groups", "dead_letter_count", "dead_letter_count_index"],
)
def test_every_path_reads_an_index(harness: Harness, name: str) -> None:
    """A plan that serves all filters has an index for each; the others are not read."""
    lists = ("subscriptions", "processors", "pipelines", "group_subscriptions",
             "group_processors", "group_pipelines")  # fmt: skip
    shown = plan_of(
        harness.store, name, before=2**40, visited=10, limit=5, since=0, until=2**40, most=5,
        chars=10, hours_since=0, path="open", **{one: [] for one in lists},
    ) if harness.store.capabilities.engine == "postgres" else plan_of(
        harness.store, name, **dict.fromkeys(lists, "[]")
    )  # fmt: skip
    assert "Seq Scan on dead_letters" not in shown, shown
    if harness.store.capabilities.engine == "sqlite":
        for index in ("open_by_id", "open_of_customer", "open_of_error", "open_of_processor",
                      "open_of_processor_error", "open_of_subscription_error", "of_subscription",
                      "of_cause"):  # fmt: skip
            assert f"INDEX dead_letters_{index}" in shown, (index, shown)
