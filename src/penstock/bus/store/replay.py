"""Delivery generations: replay, seek, purge and expiry of deliveries.

A replay starts a new generation of one settled delivery and counts as a replay. A seek does so for
everything published since a given time and purges what is older. Other subscriptions are not
affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.bus.store.deliveries import LeaseKey, lock_keys_of, move_up, return_runs, settle
from penstock.bus.store.messages import lock_keys, message_headers
from penstock.bus.store.topics import (
    SubscriptionRow,
    channel,
    journal_note,
    subscription_get_by_key,
)
from penstock.core.clock import FAR_FUTURE
from penstock.core.errors import Conflict, NotFound
from penstock.db.store import Row, Tx, first

CHUNK: Final = 500
SCAN_MAX: Final = 10_000
COUNT_MAX: Final = 10_000
"""Maximum number of deliveries that a dry run counts."""


class _Generation(NamedTuple):
    """A new generation of a settled delivery (batch of `bus_generation_add`)."""

    message_id: int
    generation: int
    epoch: int
    replays: int
    published_at: int
    copy_id: int | None
    ordering_key: str | None
    follows: bool = False
    due_at: int | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A delivery with a new generation."""

    message_id: int
    generation: int
    replays: int
    wake: set[str]


class LastGeneration(NamedTuple):
    """How the last generation of a delivery ended."""

    generation: int
    epoch: int
    attempts: int
    replays: int
    outcome: str
    published_at: int
    at: int


def delivery_replayable(tx: Tx, sub: SubscriptionRow, message_id: int) -> LastGeneration:
    """Return the last generation of a delivery to be replayed. Raises Conflict or NotFound."""
    params = {"subscription": sub.subscription_key, "message_id": message_id}
    if first(tx.rows("bus_delivery_get", params)) is not None:
        raise Conflict(
            f"message {message_id} is still being delivered to {sub.name}; nothing to replay"
        )
    row = first(tx.rows("bus_settled_last", params))
    if row is None:
        raise NotFound("delivery", f"{sub.name}/{message_id}")
    check_attached(sub)
    last = LastGeneration._make(row)
    if last.replays >= sub.replays_max:
        raise Conflict(
            f"message {message_id} was replayed {last.replays} times, as often as {sub.name} "
            f"allows (replays_max {sub.replays_max}); raise that, or discard the message"
        )
    return last


def delivery_replay(
    tx: Tx,
    sub: SubscriptionRow,
    message_id: int,
    actor: str,
    *,
    content_id: int | None = None,
    due_at: int | None = None,
) -> Replayed:
    """Deliver a settled message again to this subscription, as its next generation.

    `content_id` names another message whose content and attributes are delivered instead; `due_at`
    is the earliest delivery time. Raises Conflict if the message is still being delivered or was
    replayed as often as the subscription allows.
    """
    last = delivery_replayable(tx, sub, message_id)
    wanted = message_id if content_id is None else content_id
    content = message_headers(tx, [wanted]).get(wanted)
    if content is None:
        raise NotFound("message", wanted)
    key = content.ordering_key if sub.is_ordered else None
    lock_keys(tx, sub.topic_key, [key])
    again = (last.generation + 1, last.epoch, last.replays + 1)
    new = _Generation(message_id, *again, last.published_at, content_id, key, due_at=due_at)
    if not _add(tx, sub, [new]):
        raise Conflict(f"message {message_id} was just replayed by another request")
    if due_at is None or due_at <= tx.now():
        _restore_order(tx, sub, [key])
    _extend_retention(tx, sub, [(content.message_id, content.published_at)])
    tx.run("bus_sums_add", batch=[(sub.subscription_key, sub.customer_key, 0, 0, 0, 1)])
    journal_note(tx, ("delivery", message_id, sub.customer_key), "replayed", actor, sub.name)
    return Replayed(message_id, new.generation, new.replays, {channel(sub.subscription_key)})


def _add(tx: Tx, sub: SubscriptionRow, generations: Sequence[_Generation]) -> set[int]:
    """Insert generations of settled deliveries. Return those not added concurrently."""
    params = {"subscription": sub.subscription_key, "customer": sub.customer_key}
    added = {row[0] for row in tx.rows("bus_generation_add", params, batch=generations)}
    if not added:
        return added
    own_key = {"subscription": sub.subscription_key, "ids": sorted(added)}
    undone = tx.rows("bus_generation_undo", own_key)
    move_up(tx, sub, (key for _, key in undone))
    # A run directly follows its head, so the deliveries behind an added one are returned.
    return_runs(
        tx, sub,
        [
            (new.ordering_key, new.message_id)
            for new in generations
            if new.ordering_key is not None and new.message_id in added
        ],
    )  # fmt: skip
    return added - {message_id for message_id, _ in undone}


def _restore_order(tx: Tx, sub: SubscriptionRow, keys: Sequence[str | None]) -> None:
    """Put replayed deliveries before later waiting ones of the same key. The keys are locked."""
    batch = [(key,) for key in sorted({key for key in keys if key})]
    if batch and tx.run("bus_yield", {"subscription": sub.subscription_key}, batch=batch):
        move_up(tx, sub, keys)


def _extend_retention(tx: Tx, sub: SubscriptionRow, messages: Sequence[tuple[int, int]]) -> None:
    params = {"expires_at": tx.now() + sub.retention_us}
    tx.run("bus_retention_extend", params, batch=messages)


@dataclass(frozen=True, slots=True)
class Seek:
    """The progress of a seek: start from `seek_begin`, continue with the result of each step."""

    to: int
    until: int
    after_at: int = -1
    after_id: int = 0
    purged: int = 0
    replayed: int = 0
    is_done: bool = False


def check_attached(sub: SubscriptionRow) -> None:
    """Raise Conflict if a subscription is detached."""
    if sub.detached_at is not None:
        raise Conflict(f"subscription {sub.name} is detached and receives no more messages")


def seek_begin(tx: Tx, sub: SubscriptionRow, to: int, actor: str) -> Seek:
    """Start a seek: messages published before `to` are purged, later ones are delivered again."""
    check_attached(sub)
    journal_note(
        tx, ("subscription", sub.subscription_key, sub.customer_key), "seek", actor, sub.name
    )
    return Seek(to=to, until=tx.now(), after_at=to - 1, after_id=FAR_FUTURE)


def seek_step(tx: Tx, sub: SubscriptionRow, seek: Seek, n: int = CHUNK) -> Seek:
    """Run one bounded step of a seek, in its own transaction. Call it until `is_done`."""
    purged = delivery_purge(tx, sub, before=min(seek.to, seek.until), n=n)
    if purged:
        return progressed(seek, purged=seek.purged + purged)
    params = {
        "subscription": sub.subscription_key,
        "topic": sub.topic_key,
        "after_at": seek.after_at,
        "after_id": seek.after_id,
        "until": seek.until,
        "n": n,
    }
    rows = tx.rows("bus_settled_since", params)
    if not rows:
        return progressed(seek, is_done=True)
    added = deliver_again(tx, sub, rows)
    last = rows[-1]
    return progressed(
        seek, after_at=last[1], after_id=last[0], replayed=seek.replayed + added,
        is_done=len(rows) < n,
    )  # fmt: skip


def deliver_again(tx: Tx, sub: SubscriptionRow, rows: Sequence[Row]) -> int:
    """Give settled deliveries, read by a seek, a new generation. Return how many."""
    lock_keys(tx, sub.topic_key, [row[2] for row in rows] if sub.is_ordered else [])
    seen: set[str] = set()
    generations: list[_Generation] = []
    for message_id, published_at, key, number, epoch, replays in rows:
        own_key = key if sub.is_ordered else None
        generations.append(
            _Generation(
                message_id, number + 1, epoch, replays, published_at, None, own_key, own_key in seen
            )
        )
        if own_key is not None:
            seen.add(own_key)
    added = _add(tx, sub, generations)
    _restore_order(tx, sub, [new.ordering_key for new in generations])
    _extend_retention(tx, sub, [(row[0], row[1]) for row in rows])
    return len(added)


def progressed(seek: Seek, **changes: object) -> Seek:
    """Return a seek with these fields changed."""
    fields = {name: getattr(seek, name) for name in Seek.__slots__}
    return Seek(**{**fields, **changes})


def delivery_purge(
    tx: Tx,
    sub: SubscriptionRow,
    *,
    before: int = FAR_FUTURE,
    n: int = CHUNK,
    actor: str | None = None,
) -> int:
    """Purge the oldest deliveries published before a time, including leased ones.

    If `actor` is given, the purge is journaled. Seeks and subscription deletions have their own
    journal entries.
    """
    params = {"subscription": sub.subscription_key, "before": before, "n": n}
    rows = tx.rows("bus_before", params)
    count = settle_unchanged(tx, sub, [(row[0], row[1]) for row in rows], "purged")
    if count and actor is not None:
        what = ("subscription", sub.subscription_key, sub.customer_key)
        journal_note(tx, what, "purged", actor, f"{count} messages of {sub.name}")
    return count


def seek_count(tx: Tx, sub: SubscriptionRow, to: int) -> Seek:
    """Count the effects of a seek, each up to COUNT_MAX; change nothing."""
    check_attached(sub)
    now = tx.now()
    params = {
        "subscription": sub.subscription_key,
        "topic": sub.topic_key,
        "after_at": to - 1,
        "after_id": FAR_FUTURE,
        "until": now,
        "n": COUNT_MAX,
    }
    again = len(tx.rows("bus_settled_since", params))
    purged = purge_count(tx, sub, before=min(to, now))
    return Seek(to=to, until=now, purged=purged, replayed=again, is_done=True)


def purge_count(tx: Tx, sub: SubscriptionRow, *, before: int) -> int:
    """Return how many deliveries a purge would remove, up to COUNT_MAX; change nothing."""
    params = {"subscription": sub.subscription_key, "before": before, "n": COUNT_MAX}
    return len(tx.rows("bus_before", params))


def delivery_expire(tx: Tx, sub: SubscriptionRow, n: int = CHUNK) -> int:
    """Expire deliveries past the subscription's retention; leased ones after their deadline."""
    horizon = tx.now() - sub.retention_us
    oldest = first(tx.rows("bus_oldest", {"subscription": sub.subscription_key}))
    if oldest is None or oldest[0] > horizon:
        return 0
    params = {"subscription": sub.subscription_key, "before": horizon, "look": SCAN_MAX, "n": n}
    return settle_unchanged(
        tx, sub, [(row[0], row[1]) for row in tx.rows("bus_past_retention", params)], "expired"
    )


def subscriptions_past_retention(tx: Tx, n: int = 100) -> list[int]:
    """Return subscriptions with deliveries past their retention."""
    return [row[0] for row in tx.rows("bus_subscriptions_past_retention", {"n": n})]


def delivery_purge_deleted(tx: Tx, n: int = CHUNK) -> int:
    """Purge the deliveries of deleted subscriptions. Return how many."""
    total = 0
    for number in [row[0] for row in tx.rows("bus_subscriptions_deleted", {"n": 20})]:
        sub = subscription_get_by_key(tx, number, deleted=True)
        assert sub is not None
        total += delivery_purge(tx, sub, n=n)
    return total


def settle_unchanged(
    tx: Tx, sub: SubscriptionRow, tickets: Sequence[LeaseKey], outcome: str
) -> int:
    """Settle deliveries if their epoch is unchanged; one leased since then is left for later."""
    if not tickets:
        return 0
    lock_keys_of(tx, sub, [message_id for message_id, _ in tickets])
    return len(settle(tx, sub, tickets, outcome))
