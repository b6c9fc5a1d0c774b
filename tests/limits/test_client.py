"""Limits from the caller's side: looked at, configured live, taken away."""

from __future__ import annotations

import pytest

from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput, NotFound
from penstock.db.store import Tx
from penstock.limits.client import waits_of
from penstock.limits.store.grant import limit_serve
from penstock.limits.store.limits import limit_get
from penstock.limits.store.reads import Note
from penstock.limits.store.rows import Release, Served, Turn, Want
from tests.kits.desk import Desk


def turn(desk: Desk, *wants: str, releases: tuple[Release, ...] = ()) -> Served:
    """Ask for slots of `bq:t`, and give some back."""

    def body(tx: Tx) -> Served:
        limit = limit_get(tx, "bq:t")
        assert limit is not None
        asked = [Want(request=name, holder=f"who-{name}") for name in wants]
        return limit_serve(tx, limit.limit_id, Turn(broker="b", wants=asked, releases=releases))

    return desk.write(body)


def test_holders_and_line(desk: Desk) -> None:
    """Who holds and who waits is told, in order; more capacity lets the line in at once."""
    limits = desk.client.limits
    made = limits.declare("bq:t", {"capacity": 1, "adaptive": True}, actor="ann")
    assert (made.view.limit.effective, made.view.limit.updated_by) == (1, "ann")
    turn(desk, "a", "b", "c")
    seen = limits.get("bq:t")
    assert (seen.view.held, seen.view.waiting) == (1, 2)
    assert [lease.holder for lease in seen.holders] == ["who-a"]
    assert [ticket.holder for ticket in seen.queue] == ["who-b", "who-c"]
    wider = limits.declare("bq:t", {"capacity": 2})
    assert [lease.holder for lease in wider.holders] == ["who-a", "who-b"]
    assert wider.view.limit.is_adaptive, "what is not said stays"
    (listed,) = limits.page()
    assert (listed.limit.name, listed.held, listed.waiting) == ("bq:t", 2, 1)


def test_a_slot_is_taken_away(desk: Desk) -> None:
    """The next in line has it in the same transaction; the old token releases nothing."""
    limits = desk.client.limits
    limits.declare("bq:t", {"capacity": 1})
    turn(desk, "a", "b")
    (held,) = limits.get("bq:t").holders
    with pytest.raises(InvalidInput, match="reason"):
        limits.release(held.lease_id, "")
    assert limits.release(held.lease_id, "stuck", actor="ann").holder == "who-a"
    seen = limits.get("bq:t")
    assert [lease.holder for lease in seen.holders] == ["who-b"]
    assert seen.holders[0].token > held.token
    assert [note.outcome for note in seen.history] == ["forced"]
    assert turn(desk, releases=(Release(held.lease_id, held.token),)).released == 0
    with pytest.raises(NotFound):
        limits.release(held.lease_id, "again")
    lines = desk.sql("SELECT actor, why FROM journal WHERE action = 'forced'")
    assert [tuple(line) for line in lines] == [("ann", "stuck")]


def test_what_is_wrong_is_named(desk: Desk) -> None:
    """Settings that make no sense are refused; an unknown limit is not there."""
    limits = desk.client.limits
    for field, settings in (("lease", {"lease": "0s"}), ("burst", {"burst": 3}), ("x", {"x": 1})):
        with pytest.raises(InvalidInput, match=field):
            limits.declare("bq:t", settings)
    with pytest.raises(InvalidInput, match="limit"):
        limits.declare("no spaces", {"capacity": 1})
    with pytest.raises(NotFound):
        limits.get("bq:t")
    assert limits.page() == []


def test_waits() -> None:
    """Percentiles over the last lines; those that gave up waited until then."""

    def note(asked: int, since: int | None, at: int, outcome: str = "released") -> Note:
        return Note(1, "h", None, 1, 1, outcome, asked * SECOND,
                    None if since is None else since * SECOND, at * SECOND)  # fmt: skip

    none = waits_of([])
    assert (none.measured, none.contention) == (0, 0.0)
    history = [note(0, 0, 9)] * 97 + [note(0, 2, 9), note(0, None, 5, "timeout")]
    history.append(note(0, 0, 1, "quota"))
    waits = waits_of(history)
    assert (waits.measured, waits.p50, waits.p99) == (99, 0, 5 * SECOND)
    assert waits.contention == pytest.approx(2 / 99)
