"""The verification: reads the journal once, and compares it with seals, history and state.

Every page is a transaction of its own, so that a long verification holds no snapshot. What changes
meanwhile is not reported: a difference is looked up again before it counts as a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.audit.rows import Seal
from penstock.audit.store.journal import (
    entries_after,
    journal_cluster,
    journal_pruned_to,
    seal_entries,
    seal_list,
    seal_problem,
)
from penstock.core.clock import DAY
from penstock.db.store import Row, Transactions, Tx
from penstock.monitoring.verify.accounts import JournalAccount, Mismatch
from penstock.monitoring.verify.store import (
    PAGE,
    verify_ends,
    verify_flows,
    verify_history,
    verify_live,
    verify_once,
    verify_unpaired,
)
from penstock.schedules.store.configs import audit_verify

ENTRIES = 10_000
"""Entries of the unsealed rest that one transaction reads."""
PROBLEMS_MAX = 100


@dataclass(slots=True)
class VerifyFindings:
    """Counts and problems of a verification."""

    blocks: int = 0
    unsealed: int = 0
    audit_entries: int = 0
    runs: int = 0
    flows: int = 0
    problem_count: int = 0
    problems: list[Mismatch] = field(default_factory=list)
    account: JournalAccount = field(default_factory=JournalAccount)

    def report(self, problems: Iterable[Mismatch]) -> None:
        """Count problems, and keep the first ones."""
        for problem in problems:
            self.problem_count += 1
            if len(self.problems) < PROBLEMS_MAX:
                self.problems.append(problem)


class JournalVerifier:
    """One verification of a database."""

    def __init__(
        self, store: Transactions, on_progress: Callable[[int], None] | None = None
    ) -> None:
        """`on_progress` is called with the number of entries that were read."""
        self._store = store
        self._on_progress = on_progress
        self._found = VerifyFindings()
        self._pruned_to = 0
        self._started_at = 0
        self._ends_before = 0

    def run(self) -> VerifyFindings:
        """Verify everything."""
        found = self._found
        self._pruned_to, self._started_at = self._store.read(
            lambda tx: (journal_pruned_to(tx), tx.now())
        )
        self._read_rest(self._read_seals())
        found.report(found.account.problems)
        self._check_runs()
        self._check_flows()
        found.report(
            self._store.read(lambda tx: verify_once(tx, self._started_at - DAY, PROBLEMS_MAX))
        )
        found.audit_entries, problem = self._store.read(audit_verify)
        if problem is not None:
            found.report([Mismatch("audit_changed", "audit", problem)])
        return found

    def _read_seals(self) -> Seal | None:
        """Recompute the seals and account for the sealed entries; return the last block."""
        before: Seal | None = None
        while True:
            after = 0 if before is None else before.block
            page = self._store.read(lambda tx, after=after: seal_list(tx, after))  # type: ignore[misc]
            for seal in page:
                rows = self._store.read(
                    lambda tx, one=seal, last=before: self._block(tx, one, last)  # type: ignore[misc]
                )
                problem = seal_problem(seal, before, rows)
                if problem is not None:
                    self._found.report([Mismatch("seal_changed", f"block {seal.block}", problem)])
                self._add(rows or ())
                self._found.blocks += 1
                before = seal
            if not page:
                return before

    def _block(self, tx: Tx, seal: Seal, before: Seal | None) -> list[Row] | None:
        """Return the entries of a block; None if they may have been pruned."""
        self._pruned_to = journal_pruned_to(tx)
        return None if seal.sealed_at < self._pruned_to else seal_entries(tx, seal, before)

    def _read_rest(self, last: Seal | None) -> None:
        """Account for the entries that are not sealed yet."""
        at = (0, "0", 0) if last is None else (last.cluster, last.to_xid, last.to_seq)
        newest = self._store.read(journal_cluster)
        while at[0] <= newest:
            rows = self._store.read(lambda tx, at=at: entries_after(tx, at, ENTRIES))  # type: ignore[misc]
            self._add(rows)
            self._found.unsealed += len(rows)
            at = (at[0], rows[-1][0], rows[-1][1]) if rows else (at[0] + 1, "0", 0)

    def _add(self, rows: list[Row] | tuple[()]) -> None:
        found = self._found
        ends = found.account.add(rows)
        found.runs += len(ends)
        self._ends_before += sum(1 for end in ends if self._pruned_to <= end.at < self._started_at)
        if ends:
            found.report(self._store.read(lambda tx: verify_ends(tx, ends, journal_pruned_to(tx))))
        if self._on_progress is not None:
            self._on_progress(found.account.entries)

    def _check_runs(self) -> None:
        found, account = self._found, self._found.account
        unpaired = [*account.created, *account.ended]
        for start in range(0, len(unpaired), PAGE):
            part = unpaired[start : start + PAGE]
            found.report(
                self._store.read(
                    lambda tx, ids=part: verify_unpaired(tx, ids, is_pruned=self._pruned_to > 0)  # type: ignore[misc]
                )
            )
        found.report(
            self._store.read(
                lambda tx: verify_history(
                    tx, self._pruned_to, self._started_at, self._ends_before, PROBLEMS_MAX
                )
            )
        )
        after: int | None = 0
        while after is not None:
            after, problems = self._store.read(
                lambda tx, at=after: verify_live(tx, at, self._pruned_to)  # type: ignore[misc]
            )
            found.report(problems)

    def _check_flows(self) -> None:
        after: int | None = 0
        while after is not None:
            count, after, problems = self._store.read(
                lambda tx, at=after: verify_flows(tx, at, self._pruned_to)  # type: ignore[misc]
            )
            self._found.flows += count
            self._found.report(problems)
