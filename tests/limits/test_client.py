"""Use cases of limits: read, configure, force a release."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from penstock.core.clock import MINUTE, SECOND, to_datetime
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.core.records.record import Page
from penstock.db.store import Tx
from penstock.limits.from_rows import wait_times
from penstock.limits.rules import LimitSettings
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import (
    limit_declare,
    limit_get,
    limit_quota,
    limit_renew_many,
    limit_trim,
)
from penstock.limits.store.reads import LimitEvent
from penstock.limits.store.rows import GrantInput, GrantResult, LeaseRequest, Release
from tests.kits.client_harness import Harness
from tests.kits.plans import plan_of


def grant(harness: Harness, *wants: str, releases: tuple[Release, ...] = ()) -> GrantResult:
    """Request slots of `bq:t` and release some, in one transaction."""

    def body(tx: Tx) -> GrantResult:
        limit = limit_get(tx, "bq:t")
        assert limit is not None
        requests = [LeaseRequest(request=name, holder=f"who-{name}") for name in wants]
        grant_input = GrantInput(broker="b", requests=requests, releases=releases)
        return limit_grant(tx, limit.limit_id, grant_input)

    return harness.write(body)


def test_holders_and_queue(harness: Harness) -> None:
    """Holders and waiters are listed in order; more capacity is granted to waiters at once."""
    limits = harness.client.as_actor("ann").limits
    made = limits.declare("bq:t", capacity=1, adaptive=True)
    assert (made.limit.effective_capacity, made.limit.updated_by) == (1, "ann")
    grant(harness, "a", "b", "c")
    seen = limits.get("bq:t")
    assert (seen.limit.held, seen.limit.waiting) == (1, 2)
    assert [lease.holder for lease in seen.holders] == ["who-a"]
    assert [ticket.holder for ticket in seen.queue] == ["who-b", "who-c"]
    wider = limits.declare("bq:t", capacity=2)
    assert [lease.holder for lease in wider.holders] == ["who-a", "who-b"]
    assert wider.limit.is_adaptive, "omitted settings keep their values"
    (listed,) = limits.list().items
    assert (listed.name, listed.held, listed.waiting) == ("bq:t", 2, 1)


def test_forced_release(harness: Harness) -> None:
    """The next waiter gets the slot in the same transaction; the old token releases nothing."""
    limits = harness.client.limits
    limits.declare("bq:t", capacity=1)
    grant(harness, "a", "b")
    (held,) = limits.get("bq:t").holders
    with pytest.raises(InvalidInput, match="reason"):
        limits.release(held.lease_id, "")
    assert harness.client.as_actor("ann").limits.release(held.lease_id, "stuck").holder == "who-a"
    seen = limits.get("bq:t")
    assert [lease.holder for lease in seen.holders] == ["who-b"]
    assert seen.holders[0].fencing_token > held.fencing_token
    assert [note.outcome for note in seen.history] == ["forced"]
    late = Release(decode("lease", held.lease_id), held.fencing_token)
    assert grant(harness, releases=(late,)).released == 0
    with pytest.raises(NotFound):
        limits.release(held.lease_id, "again")
    rows = harness.sql("SELECT actor, why FROM journal WHERE action = 'forced'")
    assert [tuple(row) for row in rows] == [("ann", "stuck")]


def test_invalid_settings(harness: Harness) -> None:
    """Invalid settings raise an error that names the field; an unknown limit is not found."""
    limits = harness.client.limits
    cases: list[tuple[str, dict[str, Any]]] = [("lease", {"lease": "0s"}), ("burst", {"burst": 3})]
    for field, settings in cases:
        with pytest.raises(InvalidInput, match=field):
            limits.declare("bq:t", **settings)
    with pytest.raises(InvalidInput, match="limit"):
        limits.declare("no spaces", capacity=1)
    with pytest.raises(NotFound):
        limits.get("bq:t")
    assert limits.list() == Page(items=[])


def test_waits() -> None:
    """Percentiles cover the recent history; a timeout counts as a wait until it gave up."""

    def note(asked: int, since: int | None, at: int, outcome: str = "released") -> LimitEvent:
        return LimitEvent(1, "h", None, 1, 1, outcome, asked * SECOND,
                    None if since is None else since * SECOND, at * SECOND)  # fmt: skip

    none = wait_times([])
    assert (none.measured, none.contention) == (0, 0.0)
    history = [note(0, 0, 9)] * 97 + [note(0, 2, 9), note(0, None, 5, "timeout")]
    history.append(note(0, 0, 1, "quota"))
    waits = wait_times(history)
    assert (waits.measured, waits.p50, waits.p99) == (99, timedelta(0), timedelta(seconds=5))
    assert waits.contention == pytest.approx(2 / 99)


def names_of(harness: Harness, **filters: Any) -> list[str]:
    """Return the names of the limits that a list shows."""
    return [one.name for one in harness.client.limits.list(**filters).items]


def test_filters_of_the_list(harness: Harness) -> None:
    """By what waits, what was learned, a part of the name, or a run that holds a slot."""
    limits = harness.client.limits
    for name in ("bq:t", "crm", "maps"):
        limits.declare(name, capacity=1, adaptive=True)
    assert names_of(harness, show="line") == names_of(harness, show="learned") == []
    grant(harness, "a", "b")
    assert names_of(harness, show="line") == ["bq:t"]
    found = harness.write(lambda tx: limit_get(tx, "crm"))
    assert found is not None
    limits.declare("crm", capacity=4)
    harness.write(lambda tx: limit_quota(tx, found.limit_id))
    assert names_of(harness, show="learned") == ["crm"]
    assert names_of(harness, q="M") == ["crm", "maps"]
    assert names_of(harness, q="m", show="learned") == ["crm"]
    assert names_of(harness, q="run_?") == []
    run_id = decode("run", encode("run", 7))
    holder = LeaseRequest(request="r", holder="worker", run_id=run_id)
    harness.write(lambda tx: limit_grant(tx, found.limit_id, GrantInput("b", [holder])))
    assert names_of(harness, q=encode("run", run_id)) == ["crm"]
    assert names_of(harness, q=encode("run", run_id), show="line") == []
    first = limits.list(limit=1)
    assert limits.list(limit=1, cursor=first.next_cursor).items[0].name == "crm"
    with pytest.raises(InvalidInput, match="cursor"):
        limits.list(limit=1, cursor=first.next_cursor, q="m")
    with pytest.raises(InvalidInput, match="show"):
        limits.list(show="none")  # type: ignore[arg-type]


def test_limits_of_equal_names_are_on_different_pages(harness: Harness) -> None:
    """Customers may have limits of the same name; a page that ends between them skips none."""
    for name in ("acme", "globex", "initech"):
        harness.config(customer=name)
    for key in harness.column("SELECT customer FROM customers"):
        named = partial(limit_declare, customer_key=key, actor="tester")
        harness.write(partial(named, name="api", terms=LimitSettings()))
    names: list[str] = []
    cursor = None
    while True:
        page = harness.client.limits.list(limit=1, cursor=cursor)
        names += [one.name for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert names == ["api"] * 3


def test_changes_of_the_capacity(harness: Harness) -> None:
    """Each change of what may be held is recorded with its cause; others are not."""
    limits = harness.client.limits
    limits.declare("bq:t", capacity=4, adaptive=True)
    found = harness.write(lambda tx: limit_get(tx, "bq:t"))
    assert found is not None
    harness.write(lambda tx: limit_quota(tx, found.limit_id))
    harness.clock.advance(MINUTE)
    for n in range(3):
        held = grant(harness, f"{n}a", f"{n}b", f"{n}c").leases.values()
        grant(harness, releases=tuple(Release(one.lease_id, one.token) for one in held))
        harness.clock.advance(MINUTE)
    limits.declare("bq:t", capacity=9, adaptive=False)
    limits.declare("bq:t", grace="1s")
    series = limits.get("bq:t").capacity_series
    first = series[0]
    assert (first.before, first.capacity, first.cause) == (4, 2, "quota")
    assert [one.cause for one in series[1:]] == ["success"] * (len(series) - 2) + ["set"]
    assert all(one.capacity == after.before for one, after in pairwise(series))
    assert series[-1].capacity == 9
    assert (series[1].at - series[0].at) >= timedelta(minutes=1)
    harness.write(lambda tx: limit_trim(tx, 10))
    assert len(limits.get("bq:t").capacity_series) == len(series), "few are kept"


def test_likely_grants_and_renewals(harness: Harness) -> None:
    """A grant is estimated from recent holds; a lease says when it was renewed."""
    limits = harness.client.limits
    limits.declare("bq:t", capacity=1, lease="5m")
    (first,) = grant(harness, "a").leases.values()
    assert limits.get("bq:t").queue == []
    grant(harness, "b", "c")
    assert [one.likely_at for one in limits.get("bq:t").queue] == [None, None], "no hold ended yet"
    harness.clock.advance(10 * SECOND)
    grant(harness, releases=(Release(first.lease_id, first.token),))
    seen = limits.get("bq:t")
    (holder,), (waiter,) = seen.holders, seen.queue
    now = to_datetime(harness.clock.now())
    assert waiter.likely_at == now + timedelta(seconds=10)
    assert holder.renewed_at == holder.since == now
    harness.clock.advance(10 * SECOND)
    lease = (decode("lease", holder.lease_id), holder.fencing_token)
    harness.write(lambda tx: limit_renew_many(tx, [lease]))
    assert limits.get("bq:t").holders[0].renewed_at == now + timedelta(seconds=10)


def test_tokens_of_the_last_minute(harness: Harness) -> None:
    """Tokens granted by a rate count for sixty seconds."""
    limits = harness.client.limits
    limits.declare("bq:t", capacity=None, rate=100.0, burst=50)
    assert limits.get("bq:t").limit.used_last_minute == 0
    start = harness.clock.now()
    harness.clock.advance(MINUTE - start % MINUTE)
    grant(harness, *(f"r{n}" for n in range(30)))
    assert limits.list().items[0].used_last_minute == 30
    harness.clock.advance(90 * SECOND)
    assert limits.get("bq:t").limit.used_last_minute == 15
    harness.clock.advance(MINUTE)
    assert limits.get("bq:t").limit.used_last_minute == 0
    limits.declare("crm", capacity=1)
    assert limits.get("crm").limit.used_last_minute is None


def test_limits_in_line_are_found_by_index(harness: Harness) -> None:
    """However many requests and runs wait, only the first of each limit is read."""
    shown = plan_of(harness.store, "limit_queued", n=10)
    for table in ("limit_tickets", "run_limits"):
        assert f"Seq Scan on {table}" not in shown, shown
        assert not re.search(rf"SCAN {table}(?! USING)", shown), shown
