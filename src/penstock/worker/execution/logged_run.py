"""A run with its logger and the log entries of its execution."""

from __future__ import annotations

import logging

from penstock.core.clock import Clock
from penstock.runs.rows import HeldRun
from penstock.runs.store.logs import TAIL_PART, LogEntryRow, LogPart, encoded
from penstock.worker.execution.reporting_run import ReportingRun
from penstock.worker.execution.run_log import RunLog, RunLogger
from penstock.worker.run_info import LoadedProcessor


class LoggedRun(ReportingRun):
    """A run that keeps its log entries; nothing is created before the first entry."""

    __slots__ = ("_clock", "_kept_log", "_log_bound")

    def __init__(self, held: HeldRun, known: LoadedProcessor, clock: Clock) -> None:
        super().__init__(held, known)
        self._clock = clock
        self._kept_log: RunLog | None = None
        self._log_bound: RunLogger | None = None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger that adds the run's ids to every record; its entries are kept with the run."""
        if self._log_bound is None:
            bound = {
                "run_id": self.run_id,
                "customer_id": self.customer_id,
                "processor": self._known.processor.path,
                "attempt": self.attempt,
                "correlation_id": self.correlation_id,
            }
            self._log_bound = RunLogger(self, bound)
        return self._log_bound

    @property
    def kept_log(self) -> RunLog:
        """Entries that the execution has logged."""
        if self._kept_log is None:
            self._kept_log = RunLog(self._clock)
        return self._kept_log

    @property
    def has_entries(self) -> bool:
        """Whether the execution has logged anything."""
        return self._kept_log is not None

    def take_entries(self) -> list[LogPart]:
        """Return the entries to store now, in at most two batches."""
        log = self._kept_log
        if log is None:
            return []
        made = []
        if first := log.take():
            made.append(self._part(log.part, first))
            log.part += 1
        if last := log.tail():
            made.append(self._part(TAIL_PART, last))
        return made

    def _part(self, number: int, entries: list[LogEntryRow]) -> LogPart:
        held = self.held
        return LogPart(held.run_id, held.token, number, held.customer_key, encoded(entries))
