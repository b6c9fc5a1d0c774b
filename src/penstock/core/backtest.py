"""Recorded decisions under other thresholds: what would have changed, and what would not.

Each record is decided again as it was, which proves that the rules still say what they said, and
once more with the changes. Pure; `gate what-if` and the backtest command hand in what they stored.
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
    """A decision as it was stored, with everything it was made from."""

    given: GateInput
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A gate that would have decided otherwise."""

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
        """Whether the work would have started sooner or more fully."""
        return self.after.rank > self.before.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The outcome over all records; diverged: records that today's rules decide differently."""

    total: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    changes: tuple[Change, ...]
    diverged: int


def backtest(
    records: Iterable[Recorded], changes: ModeOptions, modes: Iterable[str] | None = None
) -> Backtest:
    """Decide every record again under the changes; modes: only in these, others stay as they were.

    Each record is judged on the evidence of its own moment: data that was looked at again later is
    a record of its own.
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
        touched = chosen is None or given.mode.name in chosen
        now = what_if(given, changes) if touched else again
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
