"""Deliveries: lease, extend, ack, nack, sweep.

Every change is a compare-and-set on the epoch in the ack id: a stale ack id changes nothing and is
reported as stale. Attempt and epoch are stored in the transaction that leases a delivery, so that a
consumer crash counts as an attempt. The caller checks access to the subscription.

A pull of an ordered subscription leases runs: the head of a key and deliveries that follow it. They
stay behind their head (state 3) and have a deadline. When the head is settled, the next one of the
run becomes the leased head. When a delivery of the run fails, those after it are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.bus import redelivery
from penstock.bus.message import (
    ORIGIN_MESSAGE_ID,
    REPLAYS,
    ErrorKind,
    Handled,
    ServiceRevision,
)
from penstock.bus.redelivery import ERROR_MAX
from penstock.bus.store.alert_commands import subscription_command
from penstock.bus.store.dead_letter_writes import FailedDelivery, write_dead_letters
from penstock.bus.store.messages import attributes_of, lock_keys
from penstock.bus.store.topics import SubscriptionRow, channel, subscription_get_by_key
from penstock.core.naming import SubscriptionKey
from penstock.db.store import Row, Tx

MISCONFIGURED: Final = "consumer_misconfigured"
DEADLINE_EXCEEDED: Final = "DEADLINE_EXCEEDED"
SWEEP_MAX: Final = 500
PULL_MAX: Final = 1_000
RUN_SCAN: Final = 2
"""Number of following deliveries that a pull reads for each one that it can lease."""

Jitter = Callable[[], float]
LeaseKey = tuple[int, int]
"""(message id, epoch)."""
LapsedKey = tuple[int, int]
"""(subscription, message id)."""


class LeasedDelivery(NamedTuple):
    """A leased delivery with its message."""

    message_id: int
    epoch: int
    attempt: int
    until_at: int
    generation: int
    replays: int
    published_at: int
    data: bytes
    attributes: dict[str, str]
    ordering_key: str | None


class DeliveryNack(NamedTuple):
    """A nack: a delivery that is returned, with the reason."""

    message_id: int
    epoch: int
    kind: ErrorKind = ErrorKind.TRANSIENT
    error_type: str = ""
    error: str = ""
    delay_us: int | None = None
    handled: Handled | None = None


class NackResult(NamedTuple):
    """The result of nacks: tickets that were current, number of dead letters, channels to wake."""

    tickets: set[LeaseKey]
    dead: int
    wake: set[str]


def delivery_pull(
    tx: Tx, sub: SubscriptionRow, n: int, holder: str | None = None
) -> list[LeasedDelivery]:
    """Lease up to `n` ready deliveries, oldest first; none while the subscription is paused."""
    if sub.is_paused or n < 1:
        return []
    n = min(n, PULL_MAX)
    locked = _lock_heads(tx, sub, n) if _has_runs(sub) else set()
    rows = _pull(tx, sub, n, holder)
    if not rows and delivery_due_of(tx, sub.subscription_key):
        rows = _pull(tx, sub, n, holder)
    elif locked and len(rows) < n:
        rows = _pull_runs(tx, sub, rows, locked, n, holder)
    copies = [row[6] for row in rows if row[6] is not None]
    contents = {} if not copies else _contents(tx, copies)
    leased = [_leased(row, contents) for row in rows]
    gone = [(row[0], row[1]) for row, one in zip(rows, leased, strict=True) if one is None]
    if gone:
        # Retention deleted the content before a sweeper ended the delivery.
        lock_keys_of(tx, sub, [message_id for message_id, _ in gone])
        settle(tx, sub, gone, "expired")
    return [one for one in leased if one is not None]


def ready_within(tx: Tx, sub: SubscriptionRow, n: int, bytes_max: int) -> int:
    """Return how many of the next `n` ready deliveries fit into `bytes_max`; at least 1.

    Deliveries that follow their head are not counted: an ordered pull may exceed the limit by a
    run.
    """
    n = min(n, PULL_MAX)
    rows = tx.rows("bus_ready_sizes", {"subscription": sub.subscription_key, "n": n})
    total = 0
    for place, row in enumerate(rows):
        total += row[0] or 0
        if total > bytes_max:
            return max(place, 1)
    return n


def acked_before(tx: Tx, sub: SubscriptionRow, tickets: Sequence[LeaseKey]) -> set[LeaseKey]:
    """Return the tickets whose deliveries were acked under these ack ids."""
    params = {"subscription": sub.subscription_key}
    rows = tx.rows("bus_acked_before", params, batch=tickets)
    return {(row[0], row[1]) for row in rows}


def _pull(tx: Tx, sub: SubscriptionRow, n: int, holder: str | None) -> list[Row]:
    return tx.rows("bus_pull", _pull_params(sub, n, holder))


def _pull_params(sub: SubscriptionRow, n: int, holder: str | None) -> dict[str, int | str | None]:
    return {
        "subscription": sub.subscription_key,
        "customer": sub.customer_key,
        "n": n,
        "ack_deadline_us": sub.ack_deadline_us,
        "holder": holder,
    }


def _has_runs(sub: SubscriptionRow) -> bool:
    """Whether a pull leases runs. Pushes and bindings settle each delivery separately."""
    return sub.is_ordered and sub.kind == "pull"


def _lock_heads(tx: Tx, sub: SubscriptionRow, n: int) -> set[str]:
    """Lock and return the keys of ready deliveries if a pull of `n` can take runs."""
    heads = tx.rows("bus_ready_heads", {"subscription": sub.subscription_key, "n": n})
    keys = {row[0] for row in heads if row[0] is not None} if len(heads) < n else set()
    lock_keys(tx, sub.topic_key, keys)
    return keys


def _pull_runs(
    tx: Tx, sub: SubscriptionRow, rows: list[Row], locked: set[str], n: int, holder: str | None
) -> list[Row]:
    """Add deliveries that follow the leased heads, up to `n`; return all in publish order."""
    # A replay with other content (row[6]) may have a different key than its message, so it starts
    # no run.
    heads = [(row[10], row[0]) for row in rows if row[6] is None and row[10] in locked]
    if not heads:
        return rows
    left = n - len(rows)
    each = min(left, -(-RUN_SCAN * left // len(heads)))
    params = {**_pull_params(sub, left, holder), "each": each}
    return sorted([*rows, *tx.rows("bus_pull_run", params, batch=sorted(heads))], key=_message_id)


def _message_id(row: Row) -> int:
    return int(row[0])


def _contents(tx: Tx, ids: list[int]) -> dict[int, Row]:
    return {row[0]: row[1:] for row in tx.rows("bus_contents", {"ids": ids})}


def _leased(row: Row, contents: dict[int, Row]) -> LeasedDelivery | None:
    message_id, epoch, attempt, until_at, number, replays, copy_id, published_at, *content = row
    if copy_id is not None:
        content = list(contents.get(copy_id, (None, None, None)))
    data, text, ordering_key = content
    if data is None:
        return None
    attributes = attributes_of(text)
    if replays:
        attributes |= {ORIGIN_MESSAGE_ID: str(message_id), REPLAYS: str(replays)}
    return LeasedDelivery(
        message_id, epoch, attempt, until_at, number, replays, published_at, bytes(data),
        attributes, ordering_key,
    )  # fmt: skip


def delivery_due_of(tx: Tx, subscription_key: SubscriptionKey, n: int = SWEEP_MAX) -> int:
    """Make due delayed deliveries of one subscription ready. Return how many."""
    return tx.run("bus_due_of", {"subscription": subscription_key, "n": n})


def delivery_due(tx: Tx, n: int = SWEEP_MAX) -> list[int]:
    """Make due delayed deliveries ready. Return their subscriptions."""
    return [row[0] for row in tx.rows("bus_due", {"n": n})]


def delivery_ack(
    tx: Tx,
    sub: SubscriptionRow,
    tickets: Sequence[LeaseKey],
    *,
    handled: Mapping[LeaseKey, Handled] | None = None,
    by: ServiceRevision | None = None,
) -> set[LeaseKey]:
    """Ack deliveries. Return the tickets that were current.

    handled, by: the consumer's report on them, for the execution log.
    """
    lock_keys_of(tx, sub, [message_id for message_id, _ in tickets])
    return settle(tx, sub, tickets, "acked", handled=handled, by=by)


def delivery_extend(
    tx: Tx, sub: SubscriptionRow, tickets: Sequence[LeaseKey], extend_us: int
) -> set[LeaseKey]:
    """Extend the deadlines of leased deliveries. Return the tickets that were current."""
    params = {"subscription": sub.subscription_key, "extend_us": extend_us}
    return {(row[0], row[1]) for row in tx.rows("bus_extend", params, batch=tickets)}


def deliveries_hasten(tx: Tx, subscription: SubscriptionKey, n: int = 10_000) -> int:
    """Make deliveries that wait after a failure ready; return their number."""
    return tx.run("bus_hasten", {"subscription": subscription, "n": n})


def delivery_nack(
    tx: Tx,
    sub: SubscriptionRow,
    nacks: Sequence[DeliveryNack],
    jitter: Jitter,
    *,
    by: ServiceRevision | None = None,
) -> NackResult:
    """Delay or dead-letter deliveries, each with its reason. A repeated ticket counts once."""
    by_ticket: dict[LeaseKey, DeliveryNack] = {}
    for nack in nacks:
        by_ticket.setdefault((nack.message_id, nack.epoch), nack)
    return _nack(tx, sub, by_ticket, jitter, lapsed=False, by=by)


def delivery_release(tx: Tx, sub: SubscriptionRow, tickets: Sequence[LeaseKey]) -> set[LeaseKey]:
    """Release deliveries that no handler has seen: ready immediately, and no attempt is counted.

    Returns the tickets that were current; they are now stale.
    """
    lock_keys_of(tx, sub, [message_id for message_id, _ in tickets])
    params = {"subscription": sub.subscription_key, "lapsed": False}
    held = tx.rows("bus_lock_leased", params, batch=sorted(set(tickets)))
    current = [(row[0], row[1]) for row in held]
    _return_later(tx, sub, [(row[7], row[0]) for row in held], current)
    tx.run("bus_release", {"subscription": sub.subscription_key}, batch=current)
    return set(current)


def delivery_lapse(
    tx: Tx,
    jitter: Jitter,
    *,
    subscription_key: SubscriptionKey | None = None,
    n: int = SWEEP_MAX,
    aside: frozenset[LapsedKey] = frozenset(),
    trying: Callable[[Iterable[LapsedKey]], None] | None = None,
) -> tuple[int, int, set[str]]:
    """Nack deliveries past their deadline. Return (count, dead letters, channels to wake).

    aside: deliveries to skip. trying: called with the deliveries before they are changed.
    """
    found = tx.rows("bus_lapsed", {"subscription": subscription_key, "n": n + len(aside)})
    rows = [row for row in found if (row[0], row[1]) not in aside][:n]
    if trying is not None:
        trying((row[0], row[1]) for row in rows)
    count, dead, wake = 0, 0, set[str]()
    for number, group in groupby(rows, key=lambda row: int(row[0])):
        sub = subscription_get_by_key(tx, SubscriptionKey(number))
        if sub is None:
            continue
        lapsed = {
            (row[1], row[2]): DeliveryNack(
                row[1], row[2], error_type=DEADLINE_EXCEEDED, error="not acked before its deadline"
            )
            for row in group
        }
        refused = _nack(tx, sub, lapsed, jitter, lapsed=True)
        count += len(refused.tickets)
        dead += refused.dead
        wake |= refused.wake
    return count, dead, wake


def _nack(
    tx: Tx,
    sub: SubscriptionRow,
    nacks: dict[LeaseKey, DeliveryNack],
    jitter: Jitter,
    *,
    lapsed: bool,
    by: ServiceRevision | None = None,
) -> NackResult:
    lock_keys_of(tx, sub, [message_id for message_id, _ in nacks])
    params = {"subscription": sub.subscription_key, "lapsed": lapsed}
    held = tx.rows("bus_lock_leased", params, batch=sorted(nacks))
    failed: list[FailedDelivery] = []
    delays: list[tuple[int, int, int, str]] = []
    policy = sub.policy
    for message_id, epoch, number, attempt, replays, copy_id, published_at, key, *_ in held:
        nack = nacks[message_id, epoch]
        wait = redelivery.redelivery_delay(policy, attempt, jitter(), nack.delay_us)
        if redelivery.becomes_dead_letter(policy, attempt, nack.kind):
            failed.append(
                FailedDelivery(
                    message_id, epoch, number, attempt, replays, copy_id, published_at, key,
                    nack.kind, nack.error_type or nack.kind.value.upper(), nack.error[:ERROR_MAX],
                )
            )  # fmt: skip
        else:
            delays.append((message_id, epoch, wait, _error_text(nack)))
    broken = [nacks[row[0], row[1]] for row in held]
    broken = [nack for nack in broken if nack.kind is ErrorKind.CONFIGURATION]
    if broken and sub.kind == "pull":
        _open_configuration_alert(tx, sub, broken[0])
    written = write_dead_letters(tx, sub, failed)
    delays += [(d.message_id, d.epoch, sub.max_backoff_us, d.error_type) for d in written.left]
    returned = {row[0] for row in held} if lapsed else {delay[0] for delay in delays}
    first_of_key = [(row[7], row[0]) for row in held if row[0] in returned]
    _return_later(tx, sub, first_of_key, [(row[0], row[1]) for row in held])
    tx.run("bus_delay", {"subscription": sub.subscription_key}, batch=delays)
    dead = {d.message_id for d in written.written}
    _record_failures(tx, sub, held, nacks, dead, lapsed=lapsed, by=by)
    count = len(held)
    if count:
        nacked, late = (0, count) if lapsed else (count, 0)
        sums = [(sub.subscription_key, sub.customer_key, 0, nacked, late, 0)]
        tx.run("bus_sums_add", batch=sums)
    wake = set(written.wake)
    if written.written:
        tickets = [(d.message_id, d.epoch) for d in written.written]
        settle(tx, sub, tickets, "dead_lettered")
        wake.add(channel(sub.subscription_key))
    return NackResult({(row[0], row[1]) for row in held}, len(dead), wake)


def _record_failures(
    tx: Tx,
    sub: SubscriptionRow,
    held: Sequence[Row],
    nacks: dict[LeaseKey, DeliveryNack],
    dead: set[int],
    *,
    lapsed: bool,
    by: ServiceRevision | None,
) -> None:
    """Record attempts that did not end with an ack, for the execution log."""
    ended = "lapsed" if lapsed else "nack"
    tx.later(
        "bus_failures_put",
        {"subscription": sub.subscription_key, "customer": sub.customer_key, **_reporter(by)},
        batch=[
            (
                row[0], row[2], row[3], "dead_letter" if row[0] in dead else ended,
                nack.error_type or nack.kind.value.upper(), nack.error[:ERROR_MAX], row[9], row[8],
                *_report(nack.handled),
            )
            for row in held
            for nack in (nacks[row[0], row[1]],)
        ],
    )  # fmt: skip


def _open_configuration_alert(tx: Tx, sub: SubscriptionRow, nack: DeliveryNack) -> None:
    """Open an alert about a consumer that fails until an operator changes its configuration.

    It is resolved an hour after the last such message (`alert_resolve_healthy`).
    """
    reason = " ".join(_error_text(nack).split())
    alert_open(
        tx,
        NewAlert(
            rule=MISCONFIGURED,
            dedupe_key=f"{MISCONFIGURED}:{sub.subscription_key}",
            severity="CRITICAL",
            customer_key=sub.customer_key or None,
            subject_kind="subscription",
            subject=sub.subscription_key,
            message=f"A consumer of subscription {sub.name} is misconfigured: {reason}",
            detail={
                "subscription": sub.name,
                "error_type": nack.error_type,
                "fix": subscription_command(tx, "resume", sub),
            },
        ),
    )


def _error_text(nack: DeliveryNack) -> str:
    text = ": ".join(part for part in (nack.error_type or nack.kind.value, nack.error) if part)
    return text[:ERROR_MAX]


# -- runs of an ordering key -------------------------------------------------------------------


def _return_later(
    tx: Tx,
    sub: SubscriptionRow,
    after: Iterable[tuple[str | None, int]],
    kept: Sequence[LeaseKey],
) -> None:
    """Return deliveries of runs that follow the first message of each key in `after`.

    kept: deliveries that the caller changes itself.
    """
    earliest: dict[str, int] = {}
    for key, message_id in after:
        if key is not None:
            earliest[key] = min(message_id, earliest.get(key, message_id))
    return_runs(tx, sub, sorted(earliest.items()), [message_id for message_id, _ in kept])


def return_runs(
    tx: Tx, sub: SubscriptionRow, after: Sequence[tuple[str, int]], kept: Sequence[int] = ()
) -> None:
    """Return the leased deliveries behind each (key, message id), without counting an attempt.

    Their ack ids become stale. The caller has locked the keys.
    """
    if after and _has_runs(sub):
        params = {
            "subscription": sub.subscription_key, "kept": list(kept), "run_max": PULL_MAX,
        }  # fmt: skip
        tx.run("bus_return_run", params, batch=after)


def move_up(tx: Tx, sub: SubscriptionRow, keys: Iterable[str | None]) -> None:
    """Make the next delivery of each key its head if the key has none. The keys are locked."""
    batch = [(key,) for key in sorted({key for key in keys if key is not None})]
    if batch:
        params = {"subscription": sub.subscription_key, "ack_deadline_us": sub.ack_deadline_us}
        tx.rows("bus_move_up", params, batch=batch)


# -- settling deliveries ------------------------------------------------------------------------


def lock_keys_of(tx: Tx, sub: SubscriptionRow, ids: Sequence[int]) -> None:
    """Lock the ordering keys of deliveries before their rows; does nothing if unordered."""
    if sub.is_ordered and ids:
        params = {"subscription": sub.subscription_key, "ids": sorted(set(ids))}
        lock_keys(tx, sub.topic_key, [row[0] for row in tx.rows("bus_keys_of", params)])


def settle(
    tx: Tx,
    sub: SubscriptionRow,
    tickets: Sequence[LeaseKey],
    outcome: str,
    *,
    handled: Mapping[LeaseKey, Handled] | None = None,
    by: ServiceRevision | None = None,
) -> set[LeaseKey]:
    """Settle deliveries and make the next of their keys ready. The caller has locked the keys."""
    params = {
        "subscription": sub.subscription_key,
        "customer": sub.customer_key,
        "outcome": outcome,
        **_reporter(by),
    }
    reports = handled or {}
    batch = [(*ticket, *_report(reports.get(ticket))) for ticket in sorted(set(tickets))]
    rows = tx.rows("bus_settle", params, batch=batch)
    move_up(tx, sub, (row[2] for row in rows))
    return {(row[0], row[1]) for row in rows}


def _reporter(by: ServiceRevision | None) -> dict[str, str | None]:
    if by is None:
        return {"service": None, "revision": None}
    return {"service": by.service, "revision": by.revision or None}


def _report(handled: Handled | None) -> tuple[str | None, int | None]:
    if handled is None:
        return None, None
    return handled.outcome.value, handled.duration_us
