"""Log entries and reports of runs, kept in the worker until the ends of the runs are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.access.store.names import NameResolver
from penstock.db.store import Transactions, Tx
from penstock.runs.rows import RunEnd
from penstock.runs.store.logs import LogPart, run_log_put_ended
from penstock.worker.execution.run_port import RunReport, reports_write


class KeptReports:
    """Log entries and actions of runs, by token."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names
        self._entries: dict[int, list[LogPart]] = {}
        self._reports: dict[int, RunReport] = {}

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return bool(self._entries or self._reports)

    def __getitem__(self, token: int) -> RunReport:
        """Return the logs and actions of a run."""
        return self._reports[token]

    def keep(self, parts: Sequence[LogPart], report: RunReport | None) -> None:
        """Keep the log entries and actions of a run."""
        for part in parts:
            self._entries.setdefault(part.token, []).append(part)
        if report is not None:
            self._reports[report.held.token] = report

    def write(self, tx: Tx, batch: Sequence[RunEnd], stored: set[int], completed: set[int]) -> None:
        """Write the log entries and actions of the ends that the store accepted; only completed
        runs perform actions.
        """
        tokens = [end.token for end in batch if end.run_id in stored]
        if self._entries:
            parts = [part for token in tokens for part in self._entries.get(token, ())]
            run_log_put_ended(tx, parts)
        reports = [self._reports[token] for token in tokens if token in self._reports]
        if reports:
            reports_write(tx, self._store, self._names, reports, completed)

    def forget(self, tokens: Iterable[int]) -> None:
        """Drop the log entries and actions of runs."""
        for token in tokens:
            self._entries.pop(token, None)
            self._reports.pop(token, None)

    def forget_report(self, token: int) -> None:
        """Drop the actions of a run, but not its log entries."""
        self._reports.pop(token, None)
