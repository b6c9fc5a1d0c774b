"""A run with its processor's reports: entities, quality, completeness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.entities.report import EntityCollector
from penstock.runs.rows import HeldRun
from penstock.worker.run_info import LoadedProcessor, RunInfo


class ReportingRun(RunInfo):
    """A run that keeps the reports of its processor; nothing is created before the first report."""

    __slots__ = ("_entities", "_reported")

    def __init__(self, held: HeldRun, known: LoadedProcessor) -> None:
        super().__init__(held, known)
        self._entities: EntityCollector | None = None
        self._reported: dict[str, Any] | None = None

    @property
    def has_reported(self) -> bool:
        """Whether the processor reported anything."""
        return self._reported is not None or self._entities is not None

    def entities(self, kind: str, ids: Iterable[str | int]) -> None:
        """Report which entities changed, for example `run.entities("players", [1630567])`.

        An empty list means that nothing of this kind changed. More than 10,000 ids in total count
        as everything.
        """
        self._entities = self._entities or EntityCollector()
        self._entities.add(kind, ids)

    def everything_changed(self, reason: str) -> None:
        """Report that everything may have changed, for example after a full reload."""
        self._entities = self._entities or EntityCollector()
        self._entities.reason = str(reason)

    def quality(self, score: float) -> None:
        """Report the result's quality from 0 to 1; gates without data to probe use it."""
        if not 0 <= score <= 1:
            raise InvalidInput("score", "a number from 0 to 1", score)
        self._reported = {**(self._reported or {}), "quality_score": float(score)}

    def completeness(self, expected: int, percent: float | None = None) -> None:
        """Report how many records were expected, and the share of them that was processed.

        Without `percent` it is computed from the records that the run processed.
        """
        if type(expected) is not int or expected < 0:
            raise InvalidInput("expected", "a whole number from 0", expected)
        if percent is not None and not 0 <= percent <= 100:
            raise InvalidInput("percent", "a number from 0 to 100", percent)
        figures = {"total_expected": expected, "completeness_pct": percent}
        given = {name: value for name, value in figures.items() if value is not None}
        self._reported = {**(self._reported or {}), **given}

    def merge_reported(self, summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the run's summary merged with the reported quality and completeness."""
        return summary if self._reported is None else {**(summary or {}), **self._reported}

    def reported_entities(self) -> Mapping[str, Any]:
        """Return the reported entities as fields of the result."""
        return {} if self._entities is None else self._entities.fields()
