"""Checks of the journal alone: every run is created once and ends once, every phase starts once.

Pure rules over journal entries in the order of their commits. The account keeps only open items:
runs without an end, ends without a creation (transactions may commit in another order than they
began), and the phases that open flows have started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock.core.ids import encode


class Mismatch(NamedTuple):
    """An inconsistency: its kind, its subject and its description."""

    kind: str
    subject: str
    text: str


class EndOfRun(NamedTuple):
    """The end of a run according to the journal (batch of `verify_ends`)."""

    run_id: int
    at: int
    final_state: str
    token: int


class _Place(msgspec.Struct):
    phase: str = ""
    processor: str | None = None


_place = msgspec.json.Decoder(_Place).decode


@dataclass(slots=True)
class JournalAccount:
    """The state of runs and phases according to the entries so far."""

    entries: int = 0
    created: set[int] = field(default_factory=set)
    """Runs that were created and have not ended."""
    ended: set[int] = field(default_factory=set)
    """Runs that ended without a known creation."""
    started: dict[int, set[tuple[str, str]]] = field(default_factory=dict)
    """Phases, or processors of them, that each open flow has started."""
    audited: dict[int, tuple[int, str]] = field(default_factory=dict)
    """The last link of each customer's audit chain: its number and hash."""
    problems: list[Mismatch] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Account for entries (columns as sealed)."""
        self.entries += len(rows)
        self._create([row[4] for row in rows if row[6] == "created" and row[3] == "run"])
        self._end([row[4] for row in rows if row[6] == "ended" and row[3] == "run"])
        for row in rows:
            if row[3] == "flow":
                if row[6] == "triggered":
                    self._start(row[4], row[12])
                elif row[6] == "ended":
                    self.started.pop(row[4], None)
            elif row[3] == "audit" and row[10] is not None:
                self._link(row[4], row[10], row[12])

    def _create(self, run_ids: Sequence[int]) -> None:
        new = set(run_ids)
        again = (new & self.created) | _repeated(run_ids, new)
        for run_id in sorted(again):
            text = "the journal has the creation of this run twice"
            self.problems.append(Mismatch("run_created_twice", encode("run", run_id), text))
        paired = new & self.ended
        self.ended -= paired
        self.created |= new - paired

    def _end(self, run_ids: Sequence[int]) -> None:
        new = set(run_ids)
        paired = new & self.created
        self.created -= paired
        self.ended |= (new - paired) | _repeated(run_ids, new)

    def _link(self, customer: int, number: int, detail: str | None) -> None:
        if number >= self.audited.get(customer, (0, ""))[0]:
            self.audited[customer] = (number, (detail or "").strip('"'))

    def _start(self, flow_id: int, detail: str | None) -> None:
        place = places([detail])[0]
        known = self.started.setdefault(flow_id, set())
        if place in known:
            self.problems.append(_started_twice(flow_id, place))
        known.add(place)


def ends_of(rows: Sequence[tuple[Any, ...]]) -> list[EndOfRun]:
    """Return the ends of runs among entries."""
    return [
        EndOfRun(row[4], row[2], row[9] or "", row[10] or 0)
        for row in rows
        if row[6] == "ended" and row[3] == "run"
    ]


def _repeated(run_ids: Sequence[int], distinct: set[int]) -> set[int]:
    if len(distinct) == len(run_ids):
        return set()
    return {run_id for run_id, count in Counter(run_ids).items() if count > 1}


def places(details: Sequence[str | None]) -> list[tuple[str, str]]:
    """Return (phase, processor) of the details of journal entries about phases."""
    found = []
    for detail in details:
        try:
            one = _place(detail or "{}")
        except msgspec.MsgspecError:
            one = _Place()
        found.append((one.phase, one.processor or ""))
    return found


def compare_starts(
    flow_id: int, stored: Sequence[tuple[str, str]], journalled: Sequence[tuple[str, str]]
) -> list[Mismatch]:
    """Compare the phases that a flow has started with the journal."""
    subject, found = encode("flow", flow_id), []
    for place in sorted(set(stored) - set(journalled)):
        text = f"{_named(place)} was started, but the journal has no entry for it"
        found.append(Mismatch("start_without_entry", subject, text))
    for place in sorted(set(journalled) - set(stored)):
        text = f"the journal says that {_named(place)} was started, but it was not"
        found.append(Mismatch("entry_without_start", subject, text))
    found += [
        _started_twice(flow_id, place)
        for place in sorted(set(journalled))
        if journalled.count(place) > 1
    ]
    return found


def compare_flow(
    flow_id: int, state: str, *, is_open: bool, opened: int, ended: int
) -> Mismatch | None:
    """Compare the state of a flow with the entries of its opening and its end."""
    subject = encode("flow", flow_id)
    if opened != 1:
        text = f"the journal has {opened} entries for the opening of this flow, expected 1"
        return Mismatch("flow_opened", subject, text)
    if is_open and ended:
        return Mismatch("flow_state", subject, f"it is {state}, but the journal has its end")
    if not is_open and not ended:
        return Mismatch("flow_state", subject, f"it is {state}, but the journal has no end for it")
    return None


def compare_end(
    run_id: int, journalled: str, final_state: str | None, token: int | None
) -> Mismatch:
    """Describe the difference between the journal's end of a run and its history."""
    subject = encode("run", run_id)
    if final_state is None:
        text = f"the journal says that it ended {journalled}, but history does not have it"
        return Mismatch("end_without_history", subject, text)
    if final_state != journalled:
        text = f"history says {final_state}, the journal says {journalled}"
    else:
        text = f"history has the fencing token {token}, the journal has a different one"
    return Mismatch("history_changed", subject, text)


def compare_heads(published: dict[int, str], stored: dict[int, str]) -> list[Mismatch]:
    """Compare published heads of blocks with the stored ones."""
    found = []
    for block, head in sorted(published.items()):
        if block not in stored:
            text = "it was published, but the block no longer exists"
        elif stored[block] != head:
            text = "its head differs from the published one: the journal was rewritten"
        else:
            continue
        found.append(Mismatch("head_changed", f"block {block}", text))
    return found


def _started_twice(flow_id: int, place: tuple[str, str]) -> Mismatch:
    text = f"the journal says that {_named(place)} was started twice"
    return Mismatch("started_twice", encode("flow", flow_id), text)


def _named(place: tuple[str, str]) -> str:
    phase, processor = place
    return f"{phase}.{processor}" if processor else f"phase {phase}"
