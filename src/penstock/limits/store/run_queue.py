"""Run queues of limits: runs wait for the slots they need, take all or none, and release them.

A run whose processor needs limits becomes LIMITED when it is due. The admitter adds it to the
queues (`queue_enter`), and every transaction that frees capacity admits the next runs
(`queue_admit`). A run's slots are rows of `limit_leases` without an expiry, from its admission to
its end or release (`queue_leave`): READY, CLAIMED and RUNNING runs hold slots, all others hold
none.

`limits.run_queue_rules` decides which runs are admitted, from rows read under the locks of the
limits, which are taken in id order. A tenant transaction cannot see the rows of other customers: it
only removes runs from the queues and wakes the admitter, which checks every queue with free
capacity (`queue_check`).
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import penstock.limits.run_queue_rules as run_queue_rules
from penstock.core.clock import Micros
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, runs_channel
from penstock.core.stored_json import from_json
from penstock.db.store import Row, Tx
from penstock.limits.rules import CAPACITY_DEFAULT, effective_capacity
from penstock.limits.run_queue_rules import FreeCapacity, WaitingRun
from penstock.limits.token_bucket import PARTS_PER_TOKEN, load_bucket
from penstock.pipelines.declare.limit_needs import (
    LimitNeed,
    customer_limit,
    limit_name_for_run,
)

ADMIT: Final = "admit"
HEADS_LOCKED: Final = 16
"""Number of runs at the head of a queue whose other limits are locked as well."""
READS_MAX: Final = 8
"""Maximum number of times a queue is read again because runs at its head moved elsewhere."""
ADMIT_MAX: Final = 1000
"""Maximum number of runs admitted per queue and transaction; the admitter continues from there."""
AGE_PER_CUSTOMER: Final = 5

_Key = tuple[int, str]


class BucketLevel(NamedTuple):
    """The bucket of a limit with a rate: level (as in `token_bucket`), time and burst size."""

    level: int
    at: Micros
    burst: int


@dataclass(slots=True)
class AdmitResult:
    """The result of admitting runs from some queues."""

    runs: int = 0
    pools: set[str] = field(default_factory=set)
    next_us: Micros | None = None
    """Microseconds until tokens may suffice for the next run; None if no run waits for tokens."""
    more: bool = False
    """Whether more runs may be admissible; call again."""

    def add(self, other: AdmitResult) -> None:
        """Add the result of another call."""
        self.runs += other.runs
        self.pools |= other.pools
        self.more |= other.more
        times = [us for us in (self.next_us, other.next_us) if us is not None]
        self.next_us = min(times, default=None)


class _New(NamedTuple):
    run_id: int
    customer_key: CustomerKey
    customer_id: str
    partition: str | None
    mode: str | None
    priority: int
    parameters: str | None
    limits: str | None
    pipeline: str
    phase: str
    processor: str
    concurrency: int | None
    """Maximum number of runs of its customer."""


def queue_enter(tx: Tx, n: int) -> tuple[int, AdmitResult]:
    """Add up to `n` LIMITED runs to their queues, and admit those with free capacity."""
    new_runs = [_New._make(row) for row in tx.rows("queue_new_runs", {"n": n})]
    if not new_runs:
        return 0, AdmitResult()
    wanted = [(new, _needs(new)) for new in new_runs]
    ids = limit_ids(tx, [(key, need) for _, needs in wanted for key, need in needs.items()])
    rows: list[tuple[int, int, int, int, int, bool]] = []
    marks: list[tuple[int, int]] = []
    free: list[int] = []
    for new, needs in wanted:
        own = sorted((ids[key], need.weight) for key, need in needs.items())
        if not own:
            free.append(new.run_id)
            continue
        marks.append((new.run_id, len(own)))
        rows += [
            (new.run_id, limit, new.customer_key, weight, new.priority, index == 0)
            for index, (limit, weight) in enumerate(own)
        ]
    tx.run("queue_put_many", batch=rows)
    tx.run("queue_count_put_many", batch=marks)
    entered = frozenset(run_id for run_id, _ in marks)
    promoted = queue_admit(tx, {row[1] for row in rows if row[5]}, entered)
    promoted.add(_admit(tx, free))
    return len(new_runs), promoted


def queue_admit(
    tx: Tx, limits: Iterable[int], entered: Container[int] = frozenset()
) -> AdmitResult:
    """Admit the next runs wherever there is free capacity; safe to call at any time.

    Runs that `entered` the queue in this transaction did not wait.
    Hints to workers are sent with the commit. Never call it in a tenant transaction.
    """
    assert tx.sees_all, "capacity needs the rows of all customers"
    promoted = AdmitResult()
    asked = sorted(set(limits))
    if not asked:
        return promoted
    locked = [row[0] for row in tx.rows("queue_lock", {"ids": asked, "window": HEADS_LOCKED})]
    capacities, buckets = _capacities(tx.rows("queue_capacity", {"ids": locked}))
    # A limit that was deleted in the meantime has no queue either.
    asked = [limit for limit in asked if limit in capacities]
    done: dict[int, WaitingRun] = {}
    for _ in range(READS_MAX):
        queues = _heads(tx, {limit: _read_count(capacities[limit]) for limit in asked}, done)
        _lock_more(tx, queues, capacities, buckets)
        judged = run_queue_rules.decide_admission(capacities, queues)
        done.update((w.run_id, w) for w in judged.escalated)
        done.update((w.run_id, w) for w in judged.admitted)
        promoted.add(_admit(tx, [waiting.run_id for waiting in judged.admitted], entered))
        promoted.add(AdmitResult(next_us=judged.next_tokens_in_us))
        _spend_tokens(tx, judged.admitted, buckets)
        if not judged.moved:
            break
        # Runs behind one that moved to another queue may now be admissible in this one.
        tx.run("queue_move_many", batch=[(run_id, to) for run_id, _, to in judged.moved])
        asked = sorted({limit for _, limit, _ in judged.moved})
    promoted.more = bool(judged.moved) or any(
        len(found) >= ADMIT_MAX
        or not all(limit in capacities for w in found for limit, _ in w.needs)
        for found in queues.values()
    )
    return promoted


def queue_leave(tx: Tx, runs: Sequence[int]) -> None:
    """Release the slots of runs and remove them from their queues; the next runs are admitted."""
    if not runs:
        return
    freed = [row[0] for row in tx.rows("queue_leave_many", {"ids": sorted(runs)})]
    if not freed:
        return
    if not tx.sees_all:
        tx.wake([ADMIT])
        return
    if queue_admit(tx, freed).more:
        tx.wake([ADMIT])


def queue_check(tx: Tx) -> tuple[list[int], Micros | None]:
    """Return limits with queued runs and free capacity, and the wait until tokens arrive elsewhere.

    Takes no locks: the result is only a hint on which queues to check.
    """
    capacities, _ = _capacities(tx.rows("queue_capacity_all"))
    found = [limit for limit, available in capacities.items() if not available.is_short_of(1)]
    waits = [wait for available in capacities.values() if (wait := available.wait_us(1))]
    return found, min(waits, default=None)


def queue_age(tx: Tx, per_customer: int = AGE_PER_CUSTOMER) -> int:
    """Escalate runs that have waited too long, and delete queue entries without a run. Return how
    many.
    """
    escalated = tx.run("queue_escalate", {"after_us": run_queue_rules.ESCALATE_AFTER})
    orphaned = sorted({row[0] for row in tx.rows("queue_orphaned_waiting", {"n": ADMIT_MAX})})
    queue_leave(tx, orphaned)
    return escalated + tx.run("queue_age", {"per_customer": per_customer}) + len(orphaned)


def queue_repair(tx: Tx) -> int:
    """Release slots of ended runs and of ready runs that no worker claims. Return how many."""
    orphaned = sorted({row[0] for row in tx.rows("queue_orphaned_held", {"n": ADMIT_MAX})})
    params = {"n": ADMIT_MAX, "after_us": run_queue_rules.UNCLAIMED_AFTER}
    idle = sorted({row[0] for row in tx.rows("queue_unclaimed", params)})
    if idle:
        tx.run("queue_return", {"ids": idle})
    queue_leave(tx, [*orphaned, *idle])
    return len(orphaned) + len(idle)


def queue_pause(tx: Tx) -> int:
    """Remove paused runs from their queues and release their slots. Return how many."""
    paused = [row[0] for row in tx.rows("queue_paused")]
    queue_leave(tx, paused)
    return len(paused)


class QueuePosition(NamedTuple):
    """The position of a waiting run in the queue of one of its limits."""

    ahead: int
    owner: CustomerKey
    """Customer that the limit belongs to; 0 for the system."""
    name: str
    weight: int
    is_waiting: bool
    queued_at: Micros
    limit_id: int
    capacity: int | None
    """Weight that may be held; None for unlimited."""
    free_capacity: FreeCapacity


class Holder(NamedTuple):
    """A holder of a limit: a run from its admission to its end, or user code with a lease."""

    holder: str
    run_id: int | None
    weight: int
    since_at: Micros
    until_at: Micros | None
    state: str | None
    claimed_by: str | None
    timeout_at: Micros | None


def queue_positions(tx: Tx, run_id: int, limit: int) -> list[QueuePosition]:
    """Return the limits a run waits for, with the number of runs ahead, counted up to `limit`."""
    found = []
    for row in tx.rows("queue_positions", {"run_id": run_id, "limit": limit}):
        ahead, owner, name, weight, is_waiting, queued_at, *rest = row
        capacities, _ = _capacities([tuple(rest)])
        most = effective_capacity(rest[1], rest[4], rest[3], is_adaptive=bool(rest[2]))
        position = (ahead, owner, name, weight, bool(is_waiting), queued_at, rest[0], most)
        found.append(QueuePosition(*position, capacities[rest[0]]))
    return found


def holders_of(tx: Tx, limit_id: int, customer_key: CustomerKey | None, n: int) -> list[Holder]:
    """Return the holders of a limit, longest-held first; of one customer if given."""
    params = {"limit_id": limit_id, "customer": customer_key, "limit": n}
    return [Holder._make(row) for row in tx.rows("queue_holders", params)]


def _admit(tx: Tx, runs: Sequence[int], entered: Container[int] = frozenset()) -> AdmitResult:
    """Make runs that hold all their slots claimable, and wake the workers of their pools."""
    batch = [(run_id, encode("run", run_id), run_id in entered) for run_id in sorted(runs)]
    pools = {row[0] for row in tx.rows("queue_admit_many", batch=batch)}
    if pools:
        tx.wake(sorted({runs_channel(pool) for pool in pools}))
    return AdmitResult(runs=len(runs), pools=pools)


def _needs(new: _New) -> dict[_Key, LimitNeed]:
    """Return the limits that a run needs, by owner and name; a repeated name counts once."""
    needs, fills = ((), {}) if new.limits is None else _stored_needs(new.limits)
    if new.concurrency is not None:
        needs = (*needs, customer_limit(new.concurrency))
    values: dict[str, Any] = dict(fills)
    if new.parameters and any("{" in need.name for need in needs):
        values.update(json.loads(new.parameters))
    values.update(
        customer=new.customer_id,
        partition=new.partition,
        mode=new.mode,
        pipeline=new.pipeline,
        phase=new.phase,
        processor=new.processor,
    )
    found: dict[_Key, LimitNeed] = {}
    for need in needs:
        owner = new.customer_key if need.is_per_customer else 0
        found.setdefault((owner, limit_name_for_run(need.name, values)), need)
    return found


@lru_cache(maxsize=1024)
def _stored_needs(text: str) -> tuple[tuple[LimitNeed, ...], Mapping[str, Any]]:
    kept = json.loads(text)
    return tuple(from_json(LimitNeed, need) for need in kept["needs"]), kept.get("defaults", {})


def limit_ids(tx: Tx, wanted: Sequence[tuple[_Key, LimitNeed]]) -> dict[_Key, int]:
    """Return limit ids by (owner, name). Creates missing limits, updates declared capacities."""
    needs = dict(wanted)
    if not needs:
        return {}
    known = {(row[1], row[2]): row for row in tx.rows("queue_limits", batch=sorted(needs))}
    put = [
        (
            *key,
            CAPACITY_DEFAULT if need.capacity is None else need.capacity,
            need.capacity is not None,
        )
        for key, need in sorted(needs.items())
        if key not in known or _capacity_changed(known[key], need)
    ]
    if put:
        tx.run("queue_limit_put_many", batch=put)
        fresh = tx.rows("queue_limits", batch=sorted(needs))
        known = {(row[1], row[2]): row for row in fresh}
    return {key: row[0] for key, row in known.items()}


def _capacity_changed(row: Row, need: LimitNeed) -> bool:
    """Whether the declared capacity differs from the stored one, set by an earlier declaration."""
    return need.capacity is not None and row[3] != need.capacity and row[4] == "declaration"


def _capacities(rows: Iterable[Row]) -> tuple[dict[int, FreeCapacity], dict[int, BucketLevel]]:
    """Return free capacity by limit, and the buckets of limits with a rate."""
    capacities: dict[int, FreeCapacity] = {}
    buckets: dict[int, BucketLevel] = {}
    for (limit, capacity, adaptive, floor, learned, rate, burst, level, level_at,
            held, ahead, now) in rows:  # fmt: skip
        most = effective_capacity(capacity, learned, floor, is_adaptive=bool(adaptive))
        available = FreeCapacity(
            free=None if most is None else most - held - ahead, held=held + ahead
        )
        if rate is not None:
            most_saved = int(burst or max(1, rate // 1))
            saved = load_bucket(rate, most_saved, level, level_at, now).level_at(now)
            available.rate, available.burst, available.tokens = (
                rate,
                float(most_saved),
                saved / PARTS_PER_TOKEN,
            )
            buckets[limit] = BucketLevel(saved, now, most_saved)
        capacities[limit] = available
    return capacities, buckets


def _read_count(available: FreeCapacity) -> int:
    """Return how many queue heads to read: the free capacity, rounded up to a power of two."""
    most = ADMIT_MAX if available.free is None else available.free
    if available.tokens is not None:
        most = min(most, max(1, int(available.tokens)))
    return 0 if most <= 0 else min(ADMIT_MAX, 1 << (most - 1).bit_length())


def _heads(tx: Tx, counts: Mapping[int, int], done: Container[int]) -> dict[int, list[WaitingRun]]:
    """Return the first runs of each queue, in order, except those already done."""
    queues: dict[int, list[WaitingRun]] = {}
    for n in sorted(set(counts.values()) - {0}):
        batch = [(limit,) for limit, count in sorted(counts.items()) if count == n]
        for limit, run_id, level, needs in tx.rows("queue_heads", {"n": n}, batch):
            if run_id not in done:
                queues.setdefault(limit, []).append(WaitingRun(run_id, level, _parsed(needs)))
    return queues


def _lock_more(
    tx: Tx,
    queues: Mapping[int, Sequence[WaitingRun]],
    capacities: dict[int, FreeCapacity],
    buckets: dict[int, BucketLevel],
) -> None:
    """Lock further limits that queue heads need, and read their free capacity."""
    more = {
        k for queue in queues.values() for w in queue for k, _ in w.needs if k not in capacities
    }
    if not more:
        return
    got = [row[0] for row in tx.rows("queue_lock_more", {"ids": sorted(more)})]
    found, saved = _capacities(tx.rows("queue_capacity", {"ids": got}))
    capacities.update(found)
    buckets.update(saved)


def _spend_tokens(tx: Tx, admitted: Iterable[WaitingRun], buckets: dict[int, BucketLevel]) -> None:
    """Take the tokens of admitted runs from the buckets."""
    spent: set[int] = set()
    for waiting in admitted:
        for limit, weight in waiting.needs:
            if limit in buckets:
                level, at, burst = buckets[limit]
                buckets[limit] = BucketLevel(
                    level - min(weight, burst) * PARTS_PER_TOKEN, at, burst
                )
                spent.add(limit)
    rows = [(limit, *buckets[limit][:2]) for limit in sorted(spent)]
    tx.run("queue_tokens_put_many", batch=rows)


def _parsed(needs: str) -> tuple[tuple[int, int], ...]:
    pairs = (need.split(":") for need in needs.split(" "))
    return tuple(sorted((int(limit), int(weight)) for limit, weight in pairs))
