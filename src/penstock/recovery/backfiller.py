"""The backfiller: starts the partitions of backfills, a bounded number of each at a time.

A step locks one backfill, records the results of its flows that have ended, and opens flows for the
next partitions, all in one transaction: a crash starts no partition twice and skips none. A worker
whose transaction ends a flow of a backfill performs the step in that transaction (`follow_flows`).
Otherwise, a flow that ends wakes the service; its timer covers lost wake-ups. Safe in any number of
replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.access.store.names import NameResolver
from penstock.audit.rows import Entry, NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import Micros
from penstock.core.errors import StoreError
from penstock.core.ids import encode
from penstock.core.naming import runs_channel
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.snapshot import Wakeup
from penstock.flows.advance.store import advance
from penstock.flows.plan import planned_of
from penstock.flows.rows import BACKFILL, FlowRow
from penstock.flows.store.create import FlowOpening, flow_open_many, opening_lock_many
from penstock.flows.store.flows import flow_get
from penstock.recovery.fates import (
    FAILED,
    PAUSED,
    STUCK,
    BackfillState,
    PartitionState,
    end_state,
    failures,
    final_phases,
    skip_reason,
)
from penstock.recovery.rows import BackfillRow, PartitionRow, PartitionWork
from penstock.recovery.store.backfills import (
    backfill_counts,
    backfill_live,
    backfill_partition_set_many,
    backfill_progress,
    backfill_set,
    backfill_take,
    backfill_take_of_flows,
    partition_work,
)
from penstock.schedules.store.configs import config_get
from penstock.schedules.store.overlap import free_occurrences

PAGE: Final = 1_000
STEP_MAX: Final = 200
"""Maximum number of partitions that one transaction starts."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillCounts:
    """Counts of one `run_once`. failed: backfills whose step raised an error."""

    backfills: int = 0
    opened: int = 0
    settled: int = 0
    skipped: int = 0
    ended: int = 0
    failed: int = 0

    def plus(self, part: BackfillCounts) -> BackfillCounts:
        """Add the counts of one backfill."""
        return replace(
            self,
            backfills=self.backfills + part.backfills,
            opened=self.opened + part.opened,
            settled=self.settled + part.settled,
            skipped=self.skipped + part.skipped,
            ended=self.ended + part.ended,
            failed=self.failed + part.failed,
        )


class Backfiller:
    """Service that executes backfills."""

    name = "backfiller"

    def __init__(
        self, store: Transactions, names: NameResolver | None = None, *, actor: str = "backfiller"
    ) -> None:
        self._store = store
        self._names = names or NameResolver(store)
        self._actor = actor

    def run_once(self) -> BackfillCounts:
        """Continue every backfill that has not ended."""
        total, after = BackfillCounts(), 0
        while True:
            page = self._store.read(lambda tx, a=after: backfill_live(tx, a, PAGE))  # type: ignore[misc]
            for backfill_id in page:
                total = total.plus(self._continue(backfill_id))
            if len(page) < PAGE:
                return total
            after = page[-1]

    def _continue(self, backfill_id: int) -> BackfillCounts:
        total = BackfillCounts()
        while True:
            try:
                part = self._store.write(lambda tx: self._step(tx, backfill_id))
            except StoreError:
                raise
            except Exception as error:  # only this backfill fails; continue with the others
                log.exception("backfill %s failed", encode("bf", backfill_id))
                self._store.write(lambda tx, e=error: _stuck(tx, backfill_id, e))  # type: ignore[misc]
                return replace(total, failed=1)
            total = total.plus(part)
            if not self._has_more(part):
                return total

    @staticmethod
    def _has_more(counts: BackfillCounts) -> bool:
        """Whether another step could start more partitions immediately."""
        return bool(counts.skipped) or counts.opened >= STEP_MAX

    def follow_flows(self, tx: Tx, flow_ids: Sequence[int]) -> set[str]:
        """Start the next partitions of backfills whose flows this transaction ended.

        Returns the pools of the new runs. Does not wait for transactions that hold a backfill.
        Backfills of a config are left to the service, because they require a lock on the config's
        row.
        """
        pools: set[str] = set()
        is_left = True
        for row in backfill_take_of_flows(tx, flow_ids):
            is_left = bool(row.config_id)
            if not is_left:
                counts = self._step_of(tx, row, pools)
                is_left = self._has_more(counts)
        if is_left:
            tx.wake([BACKFILL])
        return pools

    def _step(self, tx: Tx, backfill_id: int) -> BackfillCounts:
        row = backfill_take(tx, backfill_id)
        if row is None:
            return BackfillCounts()
        pools: set[str] = set()
        counts = self._step_of(tx, row, pools)
        if pools:
            tx.wake(sorted(map(runs_channel, pools)))
        return counts

    def _step_of(self, tx: Tx, row: BackfillRow, pools: set[str]) -> BackfillCounts:
        """Record the results of ended flows, then start the next partitions.

        `pools` receives the pools of the new runs.
        """
        progress = backfill_progress(tx, row.backfill_id, min(row.parallelism, STEP_MAX))
        counts = BackfillCounts(backfills=1, settled=len(progress.settled))
        if row.state != BackfillState.RUNNING or self._is_over_failures(tx, row, progress.settled):
            return counts
        free = max(row.parallelism - progress.running, 0)
        due = progress.waiting[:free]
        if due:
            opened = self._open(tx, row, due, progress.now, pools)
            return replace(counts, opened=opened, skipped=len(due) - opened)
        if progress.running or progress.waiting:
            return counts
        return replace(counts, ended=self._end(tx, row))

    def _is_over_failures(self, tx: Tx, row: BackfillRow, settled: Sequence[str]) -> bool:
        """Pause a backfill with too many failed partitions; return whether it is paused."""
        if row.failures_max is None or PartitionState.FAILED not in settled:
            return False
        failed = failures(backfill_counts(tx, [row.backfill_id])[row.backfill_id])
        if failed < row.failures_max:
            return False
        name = encode("bf", row.backfill_id)
        note = f"{failed} partitions failed, and failures_max is {row.failures_max}"
        self._change(tx, row, BackfillState.PAUSED, note)
        resume = f"Continue with penstock backfills resume {name}, or add --failed to repeat them."
        fix = f"penstock backfills resume {name}"
        _alert(tx, row, PAUSED, f"{_about(row)} is paused: {note}. {resume}", fix)
        return True

    def _end(self, tx: Tx, row: BackfillRow) -> int:
        counts = backfill_counts(tx, [row.backfill_id])[row.backfill_id]
        state = end_state(counts)
        if state is None:
            return 0
        words = ", ".join(f"{counts[one]} {one}" for one in PartitionState if one in counts)
        self._change(tx, row, state, words)
        if state is BackfillState.FAILED:
            name = encode("bf", row.backfill_id)
            fix = f"penstock backfills resume {name} --failed"
            _alert(tx, row, FAILED, f"{_about(row)} ended: {words}. To repeat failures: {fix}", fix)
        return 1

    def _change(self, tx: Tx, row: BackfillRow, state: BackfillState, note: str) -> None:
        backfill_set(tx, row.backfill_id, state, note)
        action = "ended" if state is not BackfillState.PAUSED else "paused"
        entry = Entry("backfill", row.backfill_id, row.customer_key, action, self._actor,
                      row.state, state.value, None, note)  # fmt: skip
        journal_append_many(tx, [entry])

    def _open(
        self,
        tx: Tx,
        row: BackfillRow,
        due: Sequence[PartitionRow],
        now: Micros,
        pools: set[str],
    ) -> int:
        """Open the flows of partitions that are not in progress or done; return their number."""
        info = self._names.pipeline(row.pipeline, tx=tx)
        plan = planned_of(info.definition, row.mode).plan
        names = [one.partition for one in due]
        opening_lock_many(tx, row.customer_key, row.pipeline_key, names)
        series = (row.customer_key, row.pipeline_key, row.config_id)
        finals = final_phases(plan, row.phases, no_downstream=row.no_downstream)
        work = partition_work(tx, series, names, finals)
        reasons = {
            one.position: skip_reason(
                work[one.partition], row.existing, is_repeated=one.attempts > 0
            )
            for one in due
        }
        chosen = [one for one in due if reasons[one.position] is None]
        ids = flow_open_many(tx, self._openings(tx, row, chosen, work), now)
        flows = dict(zip([one.position for one in chosen], ids, strict=True))
        backfill_partition_set_many(
            tx,
            row.backfill_id,
            [
                (one.position, PartitionState.RUNNING.value, flows[one.position], None)
                if one.position in flows
                else (one.position, PartitionState.SKIPPED.value, None, reasons[one.position])
                for one in due
            ],
        )
        started = [flow_id for flow_id in ids if flow_id is not None]
        if started:
            wakeups = dict.fromkeys(started, Wakeup(all_gates=True))
            done = advance(tx, wakeups, actor=row.opened_by)
            pools |= done.pools
            if done.leaves_work:
                tx.wake(["flows"])
        return len(started)

    def _openings(
        self,
        tx: Tx,
        row: BackfillRow,
        due: Sequence[PartitionRow],
        work: dict[str, PartitionWork],
    ) -> list[FlowOpening]:
        config = config_get(tx, row.config_id) if row.config_id else None
        times: Sequence[int | None] = [None] * len(due)
        if config is not None and due:
            times = free_occurrences(tx, config, len(due))
        return [
            FlowOpening(
                customer_key=row.customer_key,
                pipeline_key=row.pipeline_key,
                digest=row.digest,
                mode=row.mode,
                partition=one.partition,
                source=BACKFILL,
                correlation_id=row.correlation_id,
                opened_by=row.opened_by,
                config_id=row.config_id,
                occurrence_time=at,
                priority=row.priority,
                parameters=row.parameters,
                start_phases=row.phases,
                parent=_parent(tx, work[one.partition]) if row.phases else None,
                no_downstream=row.no_downstream,
                by_hand=True,
            )
            for one, at in zip(due, times, strict=True)
        ]


def _parent(tx: Tx, work: PartitionWork) -> FlowRow | None:
    """Return the flow whose completed phases a partition inherits."""
    return None if work.flow_id is None else flow_get(tx, work.flow_id)


def _about(row: BackfillRow) -> str:
    name = encode("bf", row.backfill_id)
    return f"{name} of {row.pipeline} {row.first_partition} to {row.last_partition}"


def _alert(tx: Tx, row: BackfillRow, rule: str, message: str, fix: str | None = None) -> None:
    alert_open(
        tx,
        NewAlert(
            rule=rule,
            dedupe_key=f"{rule}:{row.backfill_id}",
            severity="MEDIUM",
            subject_kind="backfill",
            subject=row.backfill_id,
            pipeline=row.pipeline,
            message=message[:1_000],
            customer_key=row.customer_key,
            detail={} if fix is None else {"fix": fix},
        ),
    )


def _stuck(tx: Tx, backfill_id: int, error: Exception) -> None:
    """Open an alert about a backfill whose step fails."""
    row = backfill_take(tx, backfill_id)
    if row is not None:
        text = f"{_about(row)} cannot continue: {type(error).__name__}: {error}"
        _alert(tx, row, STUCK, text)
