"""Backtests: recorded gate decisions evaluated again under other thresholds.

Each record is evaluated twice: with its original settings, which shows whether the current rules
still produce the recorded decision, and with the changed settings. The functions are pure;
`gate what-if` and the backtest command pass in stored decisions.
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
    """A stored decision and the input it was made from."""

    given: GateInput
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A gate whose verdict would have been different."""

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
        """Whether the new verdict ranks higher, so that work starts earlier or less degraded."""
        return self.after.rank > self.before.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The result over all records.

    before, after: the number of decisions by verdict. diverged: the number of records for which the
    current rules no longer produce the recorded decision.
    """

    total: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    changes: tuple[Change, ...]
    diverged: int


def backtest(
    records: Iterable[Recorded], changes: ModeOptions, modes: Iterable[str] | None = None
) -> Backtest:
    """Evaluate every record again with the changes applied.

    modes: apply the changes only to records of these modes; None means all modes. Each record is
    evaluated with the evidence recorded at its time; a later probe of the same data is a separate
    record.
    """
    selected = None if modes is None else frozenset(modes)
    before, after = Counter[str](), Counter[str]()
    changed: list[Change] = []
    total = diverged = 0
    for record in records:
        given, recorded = record.given, record.decision
        total += 1
        unchanged = decide(given)
        diverged += unchanged != recorded
        affected = selected is None or given.mode.name in selected
        revised = what_if(given, changes) if affected else unchanged
        before[recorded.verdict.value] += 1
        after[revised.verdict.value] += 1
        if revised.verdict is not recorded.verdict:
            changed.append(_change(given, recorded, revised))
    return Backtest(
        total=total, before=before, after=after, changes=tuple(changed), diverged=diverged
    )


def _change(given: GateInput, recorded: Decision, revised: Decision) -> Change:
    return Change(
        phase=given.phase,
        processor=given.processor,
        partition=given.partition,
        mode=given.mode.name,
        at=given.now,
        before=recorded.verdict,
        after=revised.verdict,
        reasons=revised.reasons,
    )
