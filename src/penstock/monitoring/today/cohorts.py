"""Rules of cohorts: their counts, their estimated end, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.core.clock import Micros


class CohortKey(NamedTuple):
    """A pipeline and the time at which its runs were due."""

    pipeline: str
    occurrence_at: Micros


class EndedPart(NamedTuple):
    """Runs of a cohort that ended."""

    key: CohortKey
    completed: int
    dead: int
    cancelled: int
    ended_at: Micros


class LivePart(NamedTuple):
    """Runs of a cohort that have not ended."""

    key: CohortKey
    running: int
    queued: int
    retrying: int
    last_start_at: Micros
    """Latest time at which a pending run may start."""


class CohortCounts(NamedTuple):
    """Numbers of a cohort's runs by state."""

    key: CohortKey
    completed: int = 0
    running: int = 0
    queued: int = 0
    retrying: int = 0
    dead: int = 0
    cancelled: int = 0
    skipped: int = 0
    ended_at: Micros = 0
    last_start_at: Micros = 0

    @property
    def open(self) -> int:
        """Runs that have not ended."""
        return self.running + self.queued + self.retrying

    @property
    def expected(self) -> int:
        """All runs of the occurrence."""
        return self.completed + self.dead + self.cancelled + self.open


def add_up(
    ended: Iterable[EndedPart],
    live: Iterable[LivePart],
    due: Iterable[tuple[CohortKey, int]],
    skipped: Iterable[tuple[CohortKey, int]],
    today: Micros,
) -> list[CohortCounts]:
    """Return the cohorts of today, and earlier ones with runs that have not ended.

    due: runs that the scheduler has not started yet. skipped: occurrences in the ledger.
    """
    made: dict[CohortKey, CohortCounts] = {}

    def of(key: CohortKey) -> CohortCounts:
        return made.get(key) or CohortCounts(key)

    for done in ended:
        made[done.key] = of(done.key)._replace(
            completed=max(0, done.completed),
            dead=max(0, done.dead),
            cancelled=max(0, done.cancelled),
            ended_at=done.ended_at,
        )
    for part in live:
        made[part.key] = of(part.key)._replace(
            running=part.running,
            queued=part.queued,
            retrying=part.retrying,
            last_start_at=part.last_start_at,
        )
    for key, runs in due:
        found = of(key)
        made[key] = found._replace(queued=found.queued + runs)
    for key, number in skipped:
        made[key] = of(key)._replace(skipped=number)
    return [
        one
        for one in made.values()
        if (one.key.occurrence_at >= today or one.open) and (one.expected or one.skipped)
    ]


def in_order(cohorts: Iterable[CohortCounts]) -> list[CohortCounts]:
    """Return cohorts with open or dead runs first, then the last of each pipeline, then others."""
    newest = sorted(cohorts, key=lambda one: (-one.key.occurrence_at, one.key.pipeline))
    seen: set[str] = set()
    ranked = []
    for one in newest:
        is_last = one.key.pipeline not in seen
        seen.add(one.key.pipeline)
        rank = 0 if one.open else 1 if one.dead else 2 if is_last else 3
        ranked.append((rank, one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def eta_of(cohort: CohortCounts, now: Micros) -> Micros | None:
    """Return the estimated end of the last run at the pace so far; None without ended or open runs.

    The estimate is never before the start of a pending retry.
    """
    done = cohort.expected - cohort.open
    if not cohort.open or not done:
        return None
    passed = max(1, now - cohort.key.occurrence_at)
    return max(now + passed * cohort.open // done, cohort.last_start_at)


def done_percentage(
    cohorts: Sequence[CohortCounts], flows_done: int, flows_due: int
) -> float | None:
    """Return the percentage of due work that has completed; None if nothing is due."""
    due = flows_due + sum(one.expected - one.cancelled for one in cohorts)
    done = flows_done + sum(one.completed for one in cohorts)
    return 100 * done / due if due else None
