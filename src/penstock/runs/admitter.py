"""The admitter: makes due runs claimable and raises the level of runs that have waited long.

Runs that need limits are put into the limits' queues here, in batches, so that submitting a run
never waits for a limit's lock. A transaction that frees capacity also promotes the next runs. As a
backstop the admitter scans every queue with free capacity, because some transactions free capacity
but cannot evaluate the queue (those restricted to one customer, slots released by user code, a
capacity raised by an operator), and because rate tokens become available as time passes.

Safe in any number of replicas; a missed wake-up costs at most one poll interval.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.access.store.registry import processor_list
from penstock.core.clock import FAR_FUTURE, MINUTE, SECOND
from penstock.core.errors import StoreError
from penstock.core.naming import PoolKey, runs_channel
from penstock.db.store import Transactions
from penstock.limits.store.customer_caps import caps_apply
from penstock.limits.store.run_queue import (
    AdmitResult,
    queue_admit,
    queue_age,
    queue_check,
    queue_enter,
    queue_repair,
)
from penstock.runs.store.admission import admission_state, run_admit_due, run_age
from penstock.runs.store.shares import run_rerank

BATCH = 5_000
BUSY_US = 50_000
"""Delay before retrying due runs that another transaction holds."""
SCAN_US = SECOND
"""Minimum time between two scans of all queues."""
SCAN_LATEST_US = 5 * SECOND
REPAIR_US = 15 * SECOND
LIMITS_PER_TX = 200
SETTINGS_US = SECOND
"""Minimum time between two checks for changed settings of customers."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCounts:
    """Counts of one step, and when the next waiting run becomes due."""

    runs: int = 0
    aged: int = 0
    queued: int = 0
    promoted: int = 0
    next_at: int | None = None
    now: int = 0


class Admitter:
    """Service that makes due runs claimable."""

    name = "admitter"

    def __init__(self, store: Transactions, *, batch: int = BATCH) -> None:
        self._store = store
        self._batch = batch
        self._aged_at = 0
        self._scanned_at = 0
        self._repaired_at = 0
        self._applied_at = 0
        self._tokens_at = FAR_FUTURE

    def run_once(self) -> AdmissionCounts:
        """Admit all due runs; once a minute, raise the level of runs that have waited long."""
        admitted: dict[int, int] = {}
        while True:
            part = self._store.write(lambda tx: run_admit_due(tx, self._batch))
            for pool, count in part.items():
                admitted[pool] = admitted.get(pool, 0) + count
            if sum(part.values()) < self._batch:
                break
        if admitted:
            names = {row.pool_key: row.pool for row in self._store.read(processor_list)}
            pools = [names[PoolKey(pool)] for pool in admitted if pool in names]
            self._store.wake(sorted({runs_channel(pool) for pool in pools}))
        next_at, has_new, has_queue, has_settings, now = self._store.read(admission_state)
        if next_at is not None and next_at <= now and not admitted:
            next_at = now + BUSY_US
        if has_settings:
            next_at = _earlier(next_at, self._apply_settings(now))
            has_new, has_queue = True, True
        lined, promoted = 0, AdmitResult()
        if has_new:
            lined, promoted = self._enqueue()
        if has_new or has_queue:
            next_at = _earlier(next_at, self._serve_queues(now, promoted))
        aged = 0
        if now - self._aged_at >= MINUTE:
            self._aged_at = now
            aged = self._store.write(run_age)
            if has_queue:
                aged += self._store.write(queue_age)
        return AdmissionCounts(
            runs=sum(admitted.values()) + promoted.runs,
            aged=aged,
            queued=lined,
            promoted=promoted.runs,
            next_at=next_at,
            now=now,
        )

    def _apply_settings(self, now: int) -> int:
        """Apply changed settings of customers to live runs; return the time of the next check.

        Settings that cannot be applied do not stop the admission.
        """
        if now - self._applied_at < SETTINGS_US:
            return self._applied_at + SETTINGS_US
        self._applied_at = now
        for step in (self._rerank, self._apply_maxima):
            try:
                step()
            except StoreError:
                raise
            except Exception:
                log.exception("applying changed settings of customers failed")
        return now + SETTINGS_US

    def _rerank(self) -> None:
        while self._store.write(lambda tx: run_rerank(tx, self._batch)) is not None:
            pass

    def _apply_maxima(self) -> None:
        after = 0
        while (done := self._store.write(lambda tx, n=after: caps_apply(tx, n))) is not None:  # type: ignore[misc]
            after = done[0] - 1 if done[1] else done[0]

    def _enqueue(self) -> tuple[int, AdmitResult]:
        """Put every run that needs limits into the queues of those limits."""
        lined, promoted = 0, AdmitResult()
        while True:
            count, part = self._store.write(lambda tx: queue_enter(tx, self._batch))
            lined += count
            promoted.add(part)
            if count < self._batch:
                return lined, promoted

    def _serve_queues(self, now: int, promoted: AdmitResult) -> int:
        """Promote runs for which there is capacity; return the time of the next scan."""
        is_due = now >= self._tokens_at or now - self._scanned_at >= SCAN_US
        if promoted.more or is_due:
            self._scanned_at = now
            found, wait_us = self._store.read(queue_check)
            for start in range(0, len(found), LIMITS_PER_TX):
                promoted.add(self._promote(found[start : start + LIMITS_PER_TX]))
            promoted.add(AdmitResult(next_us=wait_us))
            self._tokens_at = FAR_FUTURE
        if promoted.next_us is not None:
            self._tokens_at = min(self._tokens_at, now + promoted.next_us)
        if now - self._repaired_at >= REPAIR_US:
            self._repaired_at = now
            promoted.more |= self._store.write(queue_repair) > 0
        if promoted.more:
            return now + BUSY_US
        # Called before the scan was due, because of a hint about a change: scan again soon.
        scan_at = self._scanned_at + (SCAN_LATEST_US if is_due else SCAN_US)
        return min(scan_at, self._tokens_at)

    def _promote(self, limits: list[int]) -> AdmitResult:
        """Promote the runs that wait for these limits; a limit that fails is skipped."""
        try:
            return self._store.write(lambda tx: queue_admit(tx, limits))
        except StoreError:
            raise
        except Exception:
            if len(limits) == 1:
                log.exception("serving the queue of limit %s failed", limits[0])
                return AdmitResult()
        promoted, half = AdmitResult(), len(limits) // 2
        for part in (limits[:half], limits[half:]):
            promoted.add(self._promote(part))
        return promoted


def _earlier(first: int | None, second: int) -> int:
    return second if first is None else min(first, second)
