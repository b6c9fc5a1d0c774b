"""Input of an incremental processor: the entities that changed, or everything with a reason.

Pure rules. A processor receives the reports since its watermark. The watermark
moves when the processor succeeds, to the start of that run: later reports are left for the next
run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.entities.report import IDS_MAX, EntityId

FIRST_RUN: Final = "it has not succeeded before"
DECLARATION: Final = "its declaration, or that of an earlier processor, has changed"
PRUNED: Final = "reports that it has not received were deleted by retention"
TOO_MANY_IDS: Final = f"more than {IDS_MAX:,} entities changed since its last success"
OUTSIDE: Final = "the run belongs to no flow, or to one that is no longer stored"
NOT_INCREMENTAL: Final = "the processor is not declared incremental"
UNREAD: Final = "the store could not be read when the run began"
RERUN: Final = "it was started again manually"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedEntities:
    """The entities that changed since a processor last succeeded."""

    reason: str | None = None
    """Why everything must be processed; None if `entities` has all changes."""
    entities: Mapping[str, tuple[EntityId, ...]] = field(default_factory=dict)
    """Ids by kind; empty if everything must be processed."""
    partitions: tuple[str, ...] = ()
    """Partitions of the flows that reported the changes, in order."""

    @property
    def everything(self) -> bool:
        """Whether everything must be processed; `reason` says why."""
        return self.reason is not None

    @property
    def counts(self) -> dict[str, int]:
        """Number of ids by kind."""
        return {kind: len(ids) for kind, ids in self.entities.items()}

    def ids(self, kind: str) -> tuple[EntityId, ...] | None:
        """Return the changed ids of a kind; None if everything must be processed."""
        return None if self.everything else self.entities.get(kind, ())

    def __str__(self) -> str:
        return received_text(self.reason, self.counts)

    def as_json(self) -> dict[str, Any]:
        """Return the changes as JSON values, in the form that external workers receive."""
        return {
            "everything": self.everything,
            "reason": self.reason,
            "entities": {kind: list(ids) for kind, ids in self.entities.items()},
            "partitions": list(self.partitions),
        }


def received_text(reason: str | None, counts: Mapping[str, int]) -> str:
    """Return a processor's input as text: everything with the reason, or numbers of ids."""
    return f"everything: {reason}" if reason is not None else counts_text(counts) or "nothing"


def counts_text(counts: Mapping[str, int]) -> str:
    """Return numbers of ids by kind as text, such as `players (214), teams (2)`."""
    return ", ".join(f"{kind} ({count:,})" for kind, count in counts.items() if count)


class Watermark(NamedTuple):
    """The watermark of a processor: it has processed every report up to `epoch`."""

    epoch: int
    signature: str


class ReportFact(NamedTuple):
    """A report that an incremental processor may receive, or a missing report.

    is_reported: False for an execution that failed or reported nothing.
    """

    change_id: int
    processor_key: int
    counts: Mapping[str, int]
    unknown: str | None
    is_reported: bool


def reason_at_start(
    mark: Watermark | None, signature: str, pruned_to: int, *, is_rerun: bool
) -> str | None:
    """Return why a processor receives everything regardless of the reports; None if it does not."""
    if is_rerun:
        return RERUN
    if mark is None:
        return FIRST_RUN
    if mark.signature != signature:
        return DECLARATION
    if mark.epoch < pruned_to:
        return PRUNED
    return None


def reason_of_reports(
    reports: Sequence[ReportFact], names: Mapping[int, str], required: Collection[int]
) -> str | None:
    """Return why these reports do not identify the changes; None if they do.

    names: the processors before it, by key. required: those that must report; the others may report
    nothing.
    """
    for one in reports:
        counts = one.is_reported or one.processor_key in required
        if one.unknown is not None and counts:
            return f"{names[one.processor_key]} {one.unknown}"
    return TOO_MANY_IDS if len(reports) > IDS_MAX else None


def ids_at_most(reports: Sequence[ReportFact], kinds: Collection[str]) -> int:
    """Return an upper bound for the number of entities of some kinds in these reports."""
    return sum(count for one in reports for kind, count in one.counts.items() if kind in kinds)
