"""Backtests: stored decisions, decided again with other thresholds.

Each record is first decided again unchanged, which verifies that the rules still give the same
decision, and then with the changes. Pure; `gate what-if` and the backtest command pass in stored
decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.core.gate import decide, what_if
from penstock.core.mode import ModeOptions
from penstock.core.verdict import Decision, GateInput, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A stored decision with its input."""

    given: GateInput
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A decision whose verdict would have been different."""

    phase: str
    processor: str | None
    partition: str
    mode: str
    at: Micros
    before: Verdict
    after: Verdict
    reasons: tuple[str, ...]

    @property
    def is_better(self) -> bool:
        """Whether the new verdict ranks higher than the stored one."""
        return self.after.rank > self.before.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Result of a backtest.

    before, after: numbers of decisions by verdict. diverged: number of records that the current
    rules decide differently even without the changes.
    """

    total: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    changes: tuple[Change, ...]
    diverged: int


def backtest(
    records: Iterable[Recorded], changes: ModeOptions, modes: Iterable[str] | None = None
) -> Backtest:
    """Decide every record again with the changes. modes: apply them only in these modes.

    Each record is decided on its own evidence; later evaluations of the same gate are separate
    records.
    """
    chosen = None if modes is None else frozenset(modes)
    before, after = Counter[str](), Counter[str]()
    found: list[Change] = []
    total = diverged = 0
    for record in records:
        given, was = record.given, record.decision
        total += 1
        again = decide(given)
        diverged += again != was
        is_changed = chosen is None or given.mode.name in chosen
        now = what_if(given, changes) if is_changed else again
        before[was.verdict.value] += 1
        after[now.verdict.value] += 1
        if now.verdict is not was.verdict:
            found.append(_change(given, was, now))
    return Backtest(
        total=total, before=before, after=after, changes=tuple(found), diverged=diverged
    )


def _change(given: GateInput, was: Decision, now: Decision) -> Change:
    return Change(
        phase=given.phase,
        processor=given.processor,
        partition=given.partition,
        mode=given.mode.name,
        at=given.now,
        before=was.verdict,
        after=now.verdict,
        reasons=now.reasons,
    )
