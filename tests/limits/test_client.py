"""Use cases of limits: read, configure, force a release."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode
from penstock.core.records.record import Page
from penstock.db.store import Tx
from penstock.limits.from_rows import wait_times
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import limit_get
from penstock.limits.store.reads import LimitEvent
from penstock.limits.store.rows import GrantInput, GrantResult, LeaseRequest, Release
from tests.kits.client_harness import Harness


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
