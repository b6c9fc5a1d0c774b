"""The list of flows, on both engines: filters, search, order, progress, and what it reads."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from penstock.core.clock import DAY, FAR_FUTURE, shown_datetime
from penstock.core.errors import InvalidInput
from penstock.db.store import Store
from penstock.flows.store import flows as flow_store
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, chain
from tests.kits.plans import plan_of

BOUNDS = {"before": FAR_FUTURE, "first_id": 0, "last_id": FAR_FUTURE, "limit": 4,
          "direction": 1, "since": 0, "until": FAR_FUTURE}  # fmt: skip


def listed(stage: Stage, **fields: object) -> list[str]:
    """Return the partitions of the flows that are listed, of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        page = stage.client.flows.list(cursor=cursor, **fields)  # type: ignore[arg-type]
        found += [flow.partition for flow in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


def week(store: Store, clock: VirtualClock) -> Stage:
    """Return a stage with a flow a day: two complete, one with a failed phase, one running."""
    stage = Stage(store, clock, chain("raw", "analytics"), chain("only", "last", name="other"))
    for day in ("2025-11-10", "2025-11-11"):
        stage.open(partition=day, mode="same_day")
        stage.run_off()
        clock.advance(DAY)
    stage.open(partition="2025-11-12", mode="same_day")
    stage.kill("raw_job")
    stage.step()
    clock.advance(DAY)
    stage.open(partition="2025-11-13", mode="same_day")
    return stage


def test_filters_by_time_and_trouble(store: Store, clock: VirtualClock) -> None:
    """Times are those of the opening; `trouble` has failed and stuck flows of any age."""
    stage = week(store, clock)
    now = shown_datetime(clock.now())
    day = timedelta(days=1)
    assert listed(stage) == ["2025-11-13", "2025-11-12", "2025-11-11", "2025-11-10"]
    assert listed(stage, since=now - day) == ["2025-11-13", "2025-11-12"]
    assert listed(stage, until=now - 2 * day) == ["2025-11-10"]
    assert listed(stage, since=now - 2 * day, until=now, limit=1) == ["2025-11-12", "2025-11-11"]
    assert listed(stage, since=now + day) == []
    assert listed(stage, only="open") == ["2025-11-13", "2025-11-12"]
    assert listed(stage, only="trouble") == ["2025-11-12"]
    assert listed(stage, state="FAILED") == []
    clock.advance(30 * DAY)
    assert listed(stage, only="trouble", limit=1) == ["2025-11-13", "2025-11-12"]
    stage.step()
    assert listed(stage, only="open") == []
    assert listed(stage, only="trouble", limit=1) == ["2025-11-13", "2025-11-12"]
    assert listed(stage, state="FAILED") == ["2025-11-13", "2025-11-12"]
    assert listed(stage, state="DEGRADED") == []
    own = stage.client.scoped("acme")
    assert len(own.flows.list(since=now - day, until=now).items) == 1


def test_search(store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fragment is the beginning of a name, a whole id is one flow; a page looks at few flows."""
    stage = week(store, clock)
    stage.open("other", partition="2025-12-01", customer="globex", mode="same_day")
    newest = stage.client.flows.list(limit=1).items[0]
    assert listed(stage, search="2025-11-1") == listed(stage, customer="acme")
    assert listed(stage, search="OTH") == ["2025-12-01"]
    assert listed(stage, search="glob") == ["2025-12-01"]
    assert listed(stage, search="lobex") == []
    assert listed(stage, search=newest.flow_id) == ["2025-12-01"]
    assert listed(stage, search=newest.flow_id, customer="acme") == []
    assert listed(stage, search="2025-11-1", only="open") == ["2025-11-13", "2025-11-12"]
    monkeypatch.setattr(flow_store, "SEARCHED_MAX", 2)
    first = stage.client.flows.list(search="2025-11-10")
    assert not first.items
    assert first.next_cursor is not None
    assert listed(stage, search="2025-11-10") == ["2025-11-10"]
    complete = stage.client.flows.list(search="2025-11-10", state="COMPLETE")
    assert not complete.items, "a state without an index bounds a page too"
    assert listed(stage, search="2025-11-10", state="COMPLETE") == ["2025-11-10"]


def test_order_and_progress(store: Store, clock: VirtualClock) -> None:
    """Open flows are also listed by age and by risk; other orders are refused."""
    stage = Stage(store, clock, chain("raw", "analytics"))
    for day in ("2025-11-10", "2025-11-11", "2025-11-12"):
        stage.open(partition=day, mode="same_day")
        clock.advance(60_000_000)
    oldest = ["2025-11-10", "2025-11-11", "2025-11-12"]
    assert listed(stage, only="open", sort="oldest", limit=1) == oldest
    assert listed(stage, state="OPEN", sort="risk") == oldest
    stage.complete("raw_job")
    stage.step()
    assert stage.client.flows.list(limit=1).items[0].progress_percentage is None
    for shown in ({"risk": True}, {"phases": True}):
        found = stage.client.flows.list(**shown).items  # type: ignore[arg-type]
        assert {one.phases_expected for one in found} == {2}
        assert sorted(one.progress_percentage or 0 for one in found)[-1] == 50.0
        detail = stage.client.flows.get(found[0].flow_id).flow
        assert detail.progress_percentage == found[0].progress_percentage
    for field in ("since", "until"):
        with pytest.raises(InvalidInput, match=field):
            listed(stage, **{field: datetime(2025, 11, 10)})  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="only=open"):
        stage.client.flows.list(sort="risk")
    with pytest.raises(InvalidInput, match="only"):
        stage.client.flows.list(state="OPEN", only="trouble")


def test_lists_of_few_flows_read_their_index(store: Store, clock: VirtualClock) -> None:
    """Flows that ended well are not read for the open and the failed ones."""
    Stage(store, clock, chain("raw"))
    assert "flows_failed" in plan_of(store, "flow_list_failed", **BOUNDS)
    for name in ("flow_list_open", "flow_list_stuck"):
        shown = plan_of(store, name, **BOUNDS)
        assert "flows_due" in shown or "flows_open_of_config" in shown, shown
        assert "flows_pkey" not in shown, shown
    reasons = plan_of(store, "flow_cancel_reasons", since=0, until=FAR_FUTURE)
    assert "journal_for_subject" in reasons or "subject_kind_idx" in reasons, reasons
