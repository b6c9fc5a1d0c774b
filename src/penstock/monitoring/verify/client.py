"""The verification: reads the journal once, and compares it with seals, history and state.

Every page is a separate transaction, so that a long verification holds no snapshot. Concurrent
changes are not reported: a difference is read again before it counts as a problem.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.audit.rows import Seal
from penstock.audit.store.journal import (
    entries_after,
    history_pruned_to,
    journal_cluster,
    journal_pruned_to,
    seal_entries,
    seal_list,
    seal_problem,
)
from penstock.core.clock import DAY, HOUR
from penstock.db.store import Row, Transactions, Tx
from penstock.monitoring.verify.accounts import EndOfRun, JournalAccount, Mismatch, ends_of
from penstock.monitoring.verify.store import (
    CHAINS,
    PAGE,
    verify_dispositions,
    verify_ends,
    verify_flows,
    verify_history,
    verify_links,
    verify_live,
    verify_once,
    verify_unpaired,
)
from penstock.schedules.store.configs import audit_verify

ENTRIES = 10_000
"""Maximum number of unsealed entries that one transaction reads."""
PROBLEMS_MAX = 100
READERS = 2
"""Number of blocks that are read from PostgreSQL at the same time."""
RETENTION_MIN = HOUR
"""The shortest retention that can be set."""


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


class BlockReading(NamedTuple):
    """A block as it was read: its entries, its problems and those of the ends of runs in it.

    rows: None if it was pruned, wholly or in part.
    """

    seal: Seal
    rows: list[Row] | None
    ends: list[EndOfRun]
    problems: list[Mismatch]
    pruned_to: int


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
        self._is_pruned = False
        self._kept_since: int | None = None
        self._started_at = 0
        self._ends_before = 0

    def run(self) -> VerifyFindings:
        """Run all checks."""
        found = self._found
        self._pruned_to, self._started_at = self._store.read(
            lambda tx: (journal_pruned_to(tx), tx.now())
        )
        if self._pruned_to > self._started_at - RETENTION_MIN:
            text = "it claims that entries of the last hour were removed by retention"
            found.report([Mismatch("retention_changed", "journal_pruned_to", text)])
        self._read_rest(self._read_seals())
        found.report(found.account.problems)
        self._check_runs()
        self._check_flows()
        self._check_dispositions()
        self._check_audit()
        return found

    def _read_seals(self) -> Seal | None:
        """Recompute the seals and account for the sealed entries; return the last block."""
        last: Seal | None = None
        for reading in self._readings():
            last, found = reading.seal, self._found
            found.blocks += 1
            found.report(reading.problems)
            self._pruned_to = reading.pruned_to
            if reading.rows is None:
                self._is_pruned = True
                if self._kept_since is not None and last.sealed_at > self._kept_since + HOUR:
                    text = "entries are missing, although older ones are kept"
                    found.report([Mismatch("seal_changed", f"block {last.block}", text)])
                continue
            if self._kept_since is None:
                self._kept_since = last.sealed_at
            self._add(reading.rows, reading.ends)
        return last

    def _readings(self) -> Iterator[BlockReading]:
        """Yield all blocks in order. PostgreSQL reads the next ones while one is checked."""
        readers = self._store.read(lambda tx: READERS if tx.engine == "postgres" else 0)
        if not readers:
            for seal, before in self._seals():
                yield self._read_block(seal, before)
            return
        with ThreadPoolExecutor(readers, thread_name_prefix="verify") as pool:
            ahead: deque[Future[BlockReading]] = deque()
            for seal, before in self._seals():
                ahead.append(pool.submit(self._read_block, seal, before))
                if len(ahead) > readers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _seals(self) -> Iterator[tuple[Seal, Seal | None]]:
        before: Seal | None = None
        while True:
            after = 0 if before is None else before.block
            page = self._store.read(lambda tx, after=after: seal_list(tx, after))  # type: ignore[misc]
            for seal in page:
                yield seal, before
                before = seal
            if not page:
                return

    def _read_block(self, seal: Seal, before: Seal | None) -> BlockReading:
        """Read and check one block; called by several threads."""

        def body(tx: Tx) -> tuple[int, list[Row], list[EndOfRun], list[Mismatch]]:
            pruned_to = journal_pruned_to(tx)
            rows = seal_entries(tx, seal, before)
            if len(rows) != seal.entries and seal.sealed_at < pruned_to:
                return pruned_to, rows, [], []
            ends = ends_of(rows)
            return pruned_to, rows, ends, self._compare_ends(tx, ends, pruned_to)

        pruned_to, rows, ends, problems = self._store.read(body)
        is_pruned = len(rows) != seal.entries and seal.sealed_at < pruned_to
        kept = None if is_pruned else rows
        problem = seal_problem(seal, before, kept)
        if problem is not None:
            problems.insert(0, Mismatch("seal_changed", f"block {seal.block}", problem))
        return BlockReading(seal, kept, ends, problems, pruned_to)

    def _compare_ends(self, tx: Tx, ends: list[EndOfRun], pruned_to: int) -> list[Mismatch]:
        return verify_ends(tx, ends, max(pruned_to, history_pruned_to(tx))) if ends else []

    def _read_rest(self, last: Seal | None) -> None:
        """Account for the entries that are not sealed yet."""
        at = (0, "0", 0) if last is None else (last.cluster, last.to_xid, last.to_seq)
        newest = self._store.read(journal_cluster)
        while at[0] <= newest:
            rows = self._store.read(lambda tx, at=at: entries_after(tx, at, ENTRIES))  # type: ignore[misc]
            ends = ends_of(rows)
            self._found.report(
                self._store.read(
                    lambda tx, ends=ends: self._compare_ends(tx, ends, self._pruned_to)  # type: ignore[misc]
                )
            )
            self._add(rows, ends)
            self._found.unsealed += len(rows)
            at = (at[0], rows[-1][0], rows[-1][1]) if rows else (at[0] + 1, "0", 0)

    def _add(self, rows: list[Row], ends: list[EndOfRun]) -> None:
        found = self._found
        found.account.add(rows)
        found.runs += len(ends)
        self._ends_before += sum(1 for end in ends if self._pruned_to <= end.at < self._started_at)
        if self._on_progress is not None:
            self._on_progress(found.account.entries)

    def _check_runs(self) -> None:
        found, account = self._found, self._found.account
        unpaired = [*account.created, *account.ended]
        for start in range(0, len(unpaired), PAGE):
            part = unpaired[start : start + PAGE]
            found.report(
                self._store.read(
                    lambda tx, ids=part: verify_unpaired(tx, ids, is_pruned=self._is_pruned)  # type: ignore[misc]
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

    def _check_dispositions(self) -> None:
        """Check that occurrences started once, and that every recent event had its effect."""
        since = self._started_at - DAY
        self._found.report(self._store.read(lambda tx: verify_once(tx, since, PROBLEMS_MAX)))
        self._found.report(
            self._store.read(lambda tx: verify_dispositions(tx, since, PROBLEMS_MAX))
        )

    def _check_audit(self) -> None:
        """Recompute the audit chains, and compare their ends with the journal."""
        found = self._found
        found.audit_entries, problem = self._store.read(audit_verify)
        if problem is not None:
            found.report([Mismatch("audit_changed", "audit", problem)])
        links = list(found.account.audited.items())
        for start in range(0, len(links), CHAINS):
            part = dict(links[start : start + CHAINS])
            found.report(self._store.read(lambda tx, part=part: verify_links(tx, part)))  # type: ignore[misc]
