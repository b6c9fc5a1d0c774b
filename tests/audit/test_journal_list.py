"""The list of what happened, on both engines: order, filters, bounded pages, sentences."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.audit.rows import Entry, JournalFilter, ListedEntry
from penstock.audit.sentences import sentence_of
from penstock.audit.store import journal
from penstock.db.store import Tx
from tests.kits.world import World


def append(world: World, *actions: str, kind: str = "gate", actor: str = "ann") -> None:
    """Append entries, each in a transaction of its own."""
    for action in actions:
        entries = [Entry(kind, 1, None, action, actor)]
        world.write(partial(_append, entries))


def _append(entries: list[Entry], tx: Tx) -> None:
    journal.journal_append_many(tx, entries)


def pages(world: World, wanted: JournalFilter, limit: int) -> list[list[str]]:
    """Return the actions of every page."""
    after, found = None, []
    while True:
        rows, after = world.read(partial(_page, wanted, after, limit))
        found.append([row.action for row in rows])
        if after is None:
            return found


def _page(
    wanted: JournalFilter, after: journal.JournalPosition | None, limit: int, tx: Tx
) -> tuple[list[ListedEntry], journal.JournalPosition | None]:
    return journal.journal_list(tx, wanted, after, limit)


def test_the_newest_entry_comes_first(world: World) -> None:
    append(world, "a", "b", "c", "d", "e")
    assert [one for page in pages(world, JournalFilter(kind="gate"), 2) for one in page] == [
        "e",
        "d",
        "c",
        "b",
        "a",
    ]


def test_a_filter_reads_a_bounded_number_of_entries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may have no row and continue nevertheless; nothing that matches is missed."""
    monkeypatch.setattr(journal, "WINDOW", 3)
    append(world, "rare", kind="gate", actor="bob")
    append(world, *(f"step{n}" for n in range(8)))
    found = pages(world, JournalFilter(kind="gate", actor="bob"), 5)
    assert [one for page in found for one in page] == ["rare"]
    assert len(found) > 2


def test_notable_leaves_out_ordinary_runs(world: World) -> None:
    entries = [
        Entry("run", 1, None, "created", "s", None, "PENDING"),
        Entry("run", 1, None, "ended", "w", "RUNNING", "COMPLETED"),
        Entry("run", 1, None, "ended", "w", "RUNNING", "FAILED"),
        Entry("flow", 1, None, "opened", "s", None, "OPEN"),
    ]
    world.write(lambda tx: journal.journal_append_many(tx, entries))
    (found,) = pages(world, JournalFilter(is_notable=True), 10)
    assert sorted(found) == ["ended", "opened"]


def entry(
    kind: str, action: str, to_state: str | None = None, why: str | None = None
) -> ListedEntry:
    """Return an entry of acme."""
    return ListedEntry(0, "0", 1, 0, kind, 1, "acme", action, "ann", None, to_state, why, None)


WHERE = {"pipeline_template": "nba", "partition": "2025-12-30", "mode": "daily", "phase": "raw"}


@pytest.mark.parametrize(
    ("given", "detail", "expected"),
    [
        (entry("run", "ended", "COMPLETED"), {}, "export of acme completed"),
        (entry("run", "ended", "FAILED", "attempt 1 of 3"), {},
         "export of acme failed: attempt 1 of 3"),
        (entry("run", "created", "PENDING"), {}, "export of acme was created"),
        (entry("flow", "opened", "OPEN"), WHERE, "Flow nba 2025-12-30 daily was opened"),
        (entry("flow", "phase_ended", "DEGRADED"), WHERE,
         "raw of nba 2025-12-30 daily ended: degraded"),
        (entry("flow", "decided", "WAITING", "no rows"), WHERE,
         "The gate of raw of nba 2025-12-30 daily waits: no rows"),
        (entry("key", "revoked"), {}, "key revoked"),
    ],
)  # fmt: skip
def test_sentences(given: ListedEntry, detail: dict[str, str], expected: str) -> None:
    assert sentence_of(given, detail, ("billing", "export")) == expected
