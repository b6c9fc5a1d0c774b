"""Deliveries: handed over under lease, extended, acked, refused, swept.

Every change is compare-and-set on the epoch that the ack id names: a stale one changes nothing and
is told so. Attempt and epoch are stored in the transaction that hands a message over, so a consumer
that dies counts. Whoever may use the subscription is checked by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from penstock.bus import redelivery
from penstock.bus.message import ORIGIN_MESSAGE_ID, REPLAYS, ErrorKind
from penstock.bus.redelivery import ERROR_MAX
from penstock.bus.store.dead_letter_writes import Dying, bury
from penstock.bus.store.messages import attributes_of, lock_keys
from penstock.bus.store.topics import Subscription, channel, subscription_read
from penstock.db.store import Row, Tx

DEADLINE: Final = "DEADLINE_EXCEEDED"
SWEEP: Final = 500
PULL_MAX: Final = 1_000

Jitter = Callable[[], float]
Ticket = tuple[int, int]
"""(message id, epoch)."""


class Handed(NamedTuple):
    """One handing-over, as the store knows it."""

    message_id: int
    epoch: int
    attempt: int
    until_at: int
    round: int
    replays: int
    published_at: int
    data: bytes
    attributes: dict[str, str]
    ordering_key: str | None


class Refusal(NamedTuple):
    """A delivery that is given back, and why."""

    message_id: int
    epoch: int
    kind: ErrorKind = ErrorKind.TRANSIENT
    error_type: str = ""
    error: str = ""
    delay_us: int | None = None


class Refused(NamedTuple):
    """What refusing did: the tickets that were current, how many died, whom to wake."""

    tickets: set[Ticket]
    dead: int
    wake: set[str]


def delivery_pull(tx: Tx, sub: Subscription, n: int, holder: str | None = None) -> list[Handed]:
    """Take up to `n` ready deliveries under lease, oldest first; none while paused."""
    if sub.is_paused or n < 1:
        return []
    rows = _pull(tx, sub, min(n, PULL_MAX), holder)
    if not rows and delivery_due_of(tx, sub.subscription):
        rows = _pull(tx, sub, min(n, PULL_MAX), holder)
    copies = [row[6] for row in rows if row[6] is not None]
    contents = {} if not copies else _contents(tx, copies)
    handed = [_handed(row, contents) for row in rows]
    gone = [(row[0], row[1]) for row, one in zip(rows, handed, strict=True) if one is None]
    if gone:
        # Retention took the content while nobody was there to end the delivery.
        lock_keys_of(tx, sub, [message_id for message_id, _ in gone])
        settle(tx, sub, gone, "expired")
    return [one for one in handed if one is not None]


def _pull(tx: Tx, sub: Subscription, n: int, holder: str | None) -> list[Row]:
    params = {
        "subscription": sub.subscription,
        "customer": sub.customer,
        "n": n,
        "ack_deadline_us": sub.ack_deadline_us,
        "holder": holder,
    }
    return tx.rows("bus_pull", params)


def _contents(tx: Tx, ids: list[int]) -> dict[int, Row]:
    return {row[0]: row[1:] for row in tx.rows("bus_contents", {"ids": ids})}


def _handed(row: Row, contents: dict[int, Row]) -> Handed | None:
    message_id, epoch, attempt, until_at, number, replays, copy_id, published_at, *content = row
    if copy_id is not None:
        content = list(contents.get(copy_id, (None, None, None)))
    data, text, ordering_key = content
    if data is None:
        return None
    attributes = attributes_of(text)
    if replays:
        attributes |= {ORIGIN_MESSAGE_ID: str(message_id), REPLAYS: str(replays)}
    return Handed(
        message_id, epoch, attempt, until_at, number, replays, published_at, bytes(data),
        attributes, ordering_key,
    )  # fmt: skip


def delivery_due_of(tx: Tx, subscription: int, n: int = SWEEP) -> int:
    """Delayed deliveries of one subscription whose time has come are ready; returns how many."""
    return tx.run("bus_due_of", {"subscription": subscription, "n": n})


def delivery_due(tx: Tx, n: int = SWEEP) -> list[int]:
    """Delayed deliveries whose time has come are ready; returns their subscriptions."""
    return [row[0] for row in tx.rows("bus_due", {"n": n})]


def delivery_ack(tx: Tx, sub: Subscription, tickets: Sequence[Ticket]) -> set[Ticket]:
    """Settle deliveries; returns the tickets that were current."""
    lock_keys_of(tx, sub, [message_id for message_id, _ in tickets])
    return settle(tx, sub, tickets, "acked")


def delivery_extend(
    tx: Tx, sub: Subscription, tickets: Sequence[Ticket], extend_us: int
) -> set[Ticket]:
    """Move the deadlines of leased deliveries; returns the tickets that were current."""
    params = {"subscription": sub.subscription, "extend_us": extend_us}
    return {(row[0], row[1]) for row in tx.rows("bus_extend", params, batch=tickets)}


def delivery_nack(
    tx: Tx, sub: Subscription, refusals: Sequence[Refusal], jitter: Jitter
) -> Refused:
    """Give deliveries back, each with its reason: delayed, or dead; a ticket counts once."""
    by_ticket: dict[Ticket, Refusal] = {}
    for refusal in refusals:
        by_ticket.setdefault((refusal.message_id, refusal.epoch), refusal)
    return _refuse(tx, sub, by_ticket, jitter, lapsed=False)


def delivery_release(tx: Tx, sub: Subscription, tickets: Sequence[Ticket]) -> set[Ticket]:
    """Give back what was taken and never tried: ready at once, and no attempt is counted.

    Returns the tickets that were current; they are stale from here on.
    """
    params = {"subscription": sub.subscription, "lapsed": False}
    held = tx.rows("bus_hold", params, batch=sorted(set(tickets)))
    current = [(row[0], row[1]) for row in held]
    tx.run("bus_release", {"subscription": sub.subscription}, batch=current)
    return set(current)


def delivery_lapse(
    tx: Tx, jitter: Jitter, *, subscription: int | None = None, n: int = SWEEP
) -> tuple[int, int, set[str]]:
    """Give back what was held past its deadline: (how many, of them dead, whom to wake)."""
    rows = tx.rows("bus_lapsed", {"subscription": subscription, "n": n})
    count, dead, wake = 0, 0, set[str]()
    for number, group in groupby(rows, key=lambda row: int(row[0])):
        sub = subscription_read(tx, number)
        if sub is None:
            continue
        lapsed = {
            (row[1], row[2]): Refusal(
                row[1], row[2], error_type=DEADLINE, error="not acked before its deadline"
            )
            for row in group
        }
        refused = _refuse(tx, sub, lapsed, jitter, lapsed=True)
        count += len(refused.tickets)
        dead += refused.dead
        wake |= refused.wake
    return count, dead, wake


def _refuse(
    tx: Tx, sub: Subscription, refusals: dict[Ticket, Refusal], jitter: Jitter, *, lapsed: bool
) -> Refused:
    lock_keys_of(tx, sub, [message_id for message_id, _ in refusals])
    params = {"subscription": sub.subscription, "lapsed": lapsed}
    held = tx.rows("bus_hold", params, batch=sorted(refusals))
    dying: list[Dying] = []
    delays: list[tuple[int, int, int, str]] = []
    policy = sub.policy
    for message_id, epoch, number, attempt, replays, copy_id, published_at, key in held:
        why = refusals[message_id, epoch]
        wait = redelivery.delay(policy, attempt, jitter(), why.delay_us)
        if redelivery.is_dead(policy, attempt, why.kind):
            dying.append(
                Dying(
                    message_id, epoch, number, attempt, replays, copy_id, published_at, key,
                    why.kind, why.error_type or why.kind.value.upper(), why.error[:ERROR_MAX],
                )
            )  # fmt: skip
        else:
            delays.append((message_id, epoch, wait, _told(why)))
    buried = bury(tx, sub, dying)
    if not buried.is_done:
        delays += [(d.message_id, d.epoch, sub.max_backoff_us, d.error_type) for d in dying]
    tx.run("bus_delay", {"subscription": sub.subscription}, batch=delays)
    count = len(held)
    if count:
        nacked, late = (0, count) if lapsed else (count, 0)
        sums = [(sub.subscription, sub.customer, 0, nacked, late, 0)]
        tx.run("bus_sums_add", batch=sums)
    wake = set(buried.wake)
    if buried.letters:
        tickets = [(d.message_id, d.epoch) for d in dying]
        settle(tx, sub, tickets, "dead_lettered")
        wake.add(channel(sub.subscription))
    return Refused({(row[0], row[1]) for row in held}, buried.letters, wake)


def _told(why: Refusal) -> str:
    text = ": ".join(part for part in (why.error_type or why.kind.value, why.error) if part)
    return text[:ERROR_MAX]


# -- the end of deliveries ---------------------------------------------------------------------


def lock_keys_of(tx: Tx, sub: Subscription, ids: Sequence[int]) -> None:
    """Lock the ordering keys of deliveries before their rows; nothing for unordered ones."""
    if sub.is_ordered and ids:
        params = {"subscription": sub.subscription, "ids": sorted(set(ids))}
        lock_keys(tx, sub.topic, [row[0] for row in tx.rows("bus_keys_of", params)])


def settle(tx: Tx, sub: Subscription, tickets: Sequence[Ticket], outcome: str) -> set[Ticket]:
    """End deliveries and let the next of their keys move up; the caller locked the keys."""
    params = {"subscription": sub.subscription, "customer": sub.customer, "outcome": outcome}
    rows = tx.rows("bus_settle", params, batch=sorted(set(tickets)))
    keys = sorted({row[2] for row in rows if row[2] is not None})
    if keys:
        tx.rows("bus_move_up", {"subscription": sub.subscription}, batch=[(k,) for k in keys])
    return {(row[0], row[1]) for row in rows}
