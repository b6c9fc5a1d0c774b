"""Limits in the simulation: pipelines whose runs need them, and their invariants.

I29: a limit is never exceeded, with two exceptions: while a lowered capacity is exceeded, the held
weight may stay or decrease; and a single lease that weighs more than the capacity is held alone.
I31, I32: what a run holds follows from its state: ready and held runs hold all limits they need,
any other run none, and at the end nothing is held.

Checked after every commit: I29 compares the held weight with that of the previous commit.
"""

from __future__ import annotations

from typing import Final

from penstock.db.store import Tx
from penstock.limits.rules import LimitSettings
from penstock.limits.store.limits import limit_declare
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.testing.simulate.snapshots import DirectReader
from penstock.testing.simulate.violation import Violation

SHARED: Final = "shared"
LIMITED: Final = ("narrow", "heavy")
_HELD = """SELECT l.limit_id, l.name, l.capacity, coalesce(sum(e.weight), 0) FROM limits l
    LEFT JOIN limit_leases e ON e.limit_id = l.limit_id GROUP BY l.limit_id"""
_INCONSISTENT = """SELECT r.run_id, r.admission, r.limits,
        (SELECT count(*) FROM limit_leases e WHERE e.run_id = r.run_id AND e.lease_us IS NULL)
            AS holds,
        (SELECT count(*) FROM run_limits w WHERE w.run_id = r.run_id) AS waits
    FROM runs r
    WHERE holds <> CASE WHEN r.admission IN (0, 9) THEN r.limits ELSE 0 END
        OR waits <> CASE WHEN r.admission = 4 THEN r.limits ELSE 0 END
        OR (r.limits > 0 AND r.admission NOT IN (0, 4, 9))"""
_UNHELD = """SELECT r.run_id, r.admission FROM runs r JOIN processors p ON p.processor = r.processor
    WHERE p.limits IS NOT NULL AND r.limits = 0 AND r.admission = 0"""
_ORPHANED = """SELECT e.run_id FROM limit_leases e
    WHERE e.run_id IS NOT NULL AND e.run_id NOT IN (SELECT run_id FROM runs)
    UNION ALL SELECT w.run_id FROM run_limits w WHERE w.run_id NOT IN (SELECT run_id FROM runs)"""


_DECREASED = """SELECT a.token, b.token FROM limit_leases a JOIN limit_leases b
    ON a.limit_id = b.limit_id AND a.lease_id < b.lease_id AND a.token >= b.token"""


def limited_pipelines() -> list[Pipeline]:
    """One processor that needs three limits at once, and one that takes two units of one."""
    narrow, heavy = Pipeline("narrow"), Pipeline("heavy")
    narrow.processor("tight", limits=[SHARED], concurrency=2, per_customer=1, timeout="6m")(_work)
    heavy.processor("big", limits={SHARED: 2}, timeout="6m")(_work)
    return [narrow, heavy]


def declare_shared_limit(tx: Tx) -> None:
    """Give the shared limit a small capacity, so that runs wait for it."""
    limit_declare(tx, SHARED, LimitSettings(capacity=3), actor="simulation")


def resize_shared_limit(tx: Tx, capacity: int) -> None:
    """Change the capacity of the shared limit while it is held and waited for."""
    limit_declare(tx, SHARED, LimitSettings(capacity=capacity), actor="simulation")


class LimitChecks:
    """Checks limits after each commit."""

    def __init__(self, peek: DirectReader) -> None:
        self._peek = peek
        self._held: dict[int, int] = {}

    def _admitted(self, limit_id: int) -> int:
        """Return how many hold a customer's limit, without the runs that were claimed before.

        Virtual time may stand still between a claim and the declaration of the limit.
        """
        ((count,),) = self._peek.rows(
            "SELECT count(*) FROM limit_leases e JOIN limits l ON l.limit_id = e.limit_id "
            "LEFT JOIN runs r ON r.run_id = e.run_id "
            "WHERE e.limit_id = ? AND (r.claimed_at IS NULL OR e.since_at < r.claimed_at "
            "OR (e.since_at = r.claimed_at AND l.updated_at < e.since_at))",
            limit_id,
        )
        return int(count)

    def check(self) -> None:
        """Raise Violation unless capacities hold and every run holds what it should."""
        for limit_id, name, capacity, held in self._peek.rows(_HELD):
            if name.startswith("customer:"):
                held = self._admitted(limit_id)
            before, self._held[limit_id] = self._held.get(limit_id, 0), held
            if capacity is not None and held > max(capacity, before):
                ((leases,),) = self._peek.rows(
                    "SELECT count(*) FROM limit_leases WHERE limit_id = ?", limit_id
                )
                if leases > 1:
                    raise Violation(
                        "I29",
                        f"{held} of {name} are held, at most {max(capacity, before)} may be"
                        f" (capacity {capacity}, {before} held before)",
                    )
        for decreased in self._peek.rows(_DECREASED):
            raise Violation("I30", f"a later lease has no higher token: {decreased}")
        for inconsistent in self._peek.rows(_INCONSISTENT):
            raise Violation("I31", f"a run holds other limits than it should: {inconsistent}")
        for unlimited in self._peek.rows(_UNHELD):
            raise Violation("I29", f"a run that needs limits is ready without any: {unlimited}")
        for orphaned in self._peek.rows(_ORPHANED):
            raise Violation("I32", f"an ended run still holds or waits: {orphaned}")

    def remaining_work(self) -> list[object]:
        """Return what is still held or waited for; slots of a dead process expire."""
        return list(
            self._peek.rows(
                "SELECT lease_id FROM limit_leases UNION ALL SELECT ticket FROM limit_tickets"
            )
        )

    def finish(self) -> int:
        """Check that nothing is held or waited for at the end."""
        left = self._peek.rows(
            "SELECT run_id FROM limit_leases UNION ALL SELECT run_id FROM run_limits"
        )
        if left:
            raise Violation("I32", f"still held at the end: {left[:3]}")
        return 1


def _work(run: object) -> None:
    """Processor body; the simulation decides its outcome."""
