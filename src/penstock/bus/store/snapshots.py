"""Snapshots: the state of a subscription at a time, and the seek back to it.

A snapshot is a time and copies nothing: the tables of settled and open deliveries show which
messages were open then, because each row has the times at which its generation began and ended. A
seek makes those messages and all later ones open again, and settles the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.bus import rules
from penstock.bus.store.replay import (
    CHUNK,
    COUNT_MAX,
    Seek,
    check_attached,
    deliver_again,
    progressed,
    seek_begin,
    settle_unchanged,
)
from penstock.bus.store.topics import SubscriptionRow, journal_note, subscription_get
from penstock.core.clock import DAY, HOUR
from penstock.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from penstock.core.naming import CustomerKey, SubscriptionKey, TopicKey
from penstock.db.store import Tx, first, one

LIFETIME: Final = 7 * DAY
"""Lifetime of a snapshot, counted from the publish time of its oldest open message."""
LIFETIME_MIN: Final = HOUR
COUNT_VISITED: Final = 100_000
"""Maximum number of unsettled deliveries that a dry run of a seek examines."""


class SnapshotRow(NamedTuple):
    """A snapshot as stored."""

    snapshot_key: int
    customer_key: CustomerKey
    name: str
    topic_key: TopicKey
    topic_name: str
    subscription_key: SubscriptionKey
    taken_at: int
    oldest_at: int
    expires_at: int
    labels: str


def snapshot_create(
    tx: Tx,
    name: str,
    subscription: str,
    customer_key: CustomerKey,
    *,
    labels: Mapping[str, str],
    actor: str,
) -> SnapshotRow:
    """Take a snapshot of a subscription. Raises AlreadyExists if the name is taken."""
    rules.check_name(name, "snapshot")
    sub = subscription_get(tx, subscription, customer_key)
    now = tx.now()
    oldest = first(tx.rows("bus_oldest", {"subscription": sub.subscription_key}))
    oldest_at = now if oldest is None else min(now, oldest[0])
    if oldest_at + LIFETIME < now + LIFETIME_MIN:
        raise Conflict(
            f"subscription {subscription} has a message that was published more than 6 days and 23 "
            "hours ago; a snapshot of it would expire within an hour. Ack or purge it first."
        )
    params = {
        "customer": customer_key,
        "name": name,
        "topic": sub.topic_key,
        "subscription": sub.subscription_key,
        "oldest_at": oldest_at,
        "expires_at": oldest_at + LIFETIME,
        "labels": rules.labels_text(labels),
        "actor": actor,
    }
    if not tx.rows("bus_snapshot_add", params):
        raise AlreadyExists("snapshot", name)
    found = snapshot_get(tx, name, customer_key)
    journal_note(tx, ("snapshot", found.snapshot_key, customer_key), "created", actor, name)
    return found


def snapshot_get(tx: Tx, name: str, customer_key: CustomerKey) -> SnapshotRow:
    """Return a snapshot by name. Raises NotFound if there is none, or it has expired."""
    row = first(tx.rows("bus_snapshot_get", {"customer": customer_key, "name": name}))
    if row is None:
        raise NotFound("snapshot", name)
    return SnapshotRow._make(row)


def snapshot_list(
    tx: Tx,
    customer_key: CustomerKey,
    *,
    topic: TopicKey | None = None,
    after: str = "",
    limit: int = 100,
) -> list[SnapshotRow]:
    """Return snapshots by name, of one topic or of all."""
    params = {"customer": customer_key, "topic": topic, "after": after, "limit": limit}
    return [SnapshotRow._make(row) for row in tx.rows("bus_snapshot_list", params)]


def snapshot_change(
    tx: Tx, found: SnapshotRow, *, labels: Mapping[str, str], expires_at: int
) -> SnapshotRow:
    """Change the labels and the expiry of a snapshot; the expiry cannot exceed `LIFETIME`."""
    most = found.oldest_at + LIFETIME
    if not tx.now() < expires_at <= most:
        raise InvalidInput("expire_time", "a time in the future within 7 days", expires_at)
    params = {
        "snapshot": found.snapshot_key,
        "customer": found.customer_key,
        "labels": rules.labels_text(labels),
        "expires_at": expires_at,
    }
    tx.run("bus_snapshot_change", params)
    return found._replace(labels=str(params["labels"]), expires_at=expires_at)


def snapshot_delete(tx: Tx, name: str, customer_key: CustomerKey, actor: str) -> None:
    """Delete a snapshot. Raises NotFound if there is none."""
    rows = tx.rows("bus_snapshot_delete", {"customer": customer_key, "name": name})
    if not rows:
        raise NotFound("snapshot", name)
    journal_note(tx, ("snapshot", rows[0][0], customer_key), "deleted", actor, name)


def snapshot_seek_begin(tx: Tx, sub: SubscriptionRow, to: SnapshotRow, actor: str) -> Seek:
    """Start a seek to a snapshot of the same topic."""
    _check_topic(sub, to)
    seek = seek_begin(tx, sub, to.oldest_at, actor)
    return progressed(seek, after_at=-1, after_id=0)


def snapshot_seek_count(tx: Tx, sub: SubscriptionRow, to: SnapshotRow) -> Seek:
    """Count the effects of a seek to a snapshot, each up to COUNT_MAX; change nothing.

    At most COUNT_VISITED unsettled deliveries are examined.
    """
    _check_topic(sub, to)
    check_attached(sub)
    now = tx.now()
    params = {
        "subscription": sub.subscription_key,
        "topic": sub.topic_key,
        "source": to.subscription_key,
        "taken_at": to.taken_at,
        "after_at": to.oldest_at - 1,
        "after_id": 0,
        "until": now,
        "n": COUNT_MAX,
        "visited": COUNT_VISITED,
    }
    again = len(tx.rows("bus_snapshot_settled", params))
    purged = min(COUNT_MAX, one(tx.rows("bus_snapshot_purge_count", params))[0])
    return Seek(to=to.oldest_at, until=now, purged=purged, replayed=again, is_done=True)


def _check_topic(sub: SubscriptionRow, to: SnapshotRow) -> None:
    if to.topic_key != sub.topic_key:
        raise Conflict(f"snapshot {to.name} and subscription {sub.name} belong to different topics")


def snapshot_seek_step(
    tx: Tx, sub: SubscriptionRow, to: SnapshotRow, seek: Seek, n: int = CHUNK
) -> Seek:
    """Run one bounded step of a seek to a snapshot, in its own transaction, until `is_done`.

    First, messages that are not in the snapshot are settled, by message id (`after_at` is -1); then
    those in it are delivered again, by publish time.
    """
    params = {
        "subscription": sub.subscription_key,
        "topic": sub.topic_key,
        "source": to.subscription_key,
        "taken_at": to.taken_at,
        "after_at": seek.after_at,
        "after_id": seek.after_id,
        "until": seek.until,
        "n": n,
    }
    if seek.after_at < 0:
        rows = tx.rows("bus_snapshot_open", params)
        gone = [(row[0], row[1]) for row in rows if not row[2]]
        purged = settle_unchanged(tx, sub, gone, "purged")
        if len(rows) == n:
            return progressed(seek, after_id=rows[-1][0], purged=seek.purged + purged)
        start = to.oldest_at - 1
        return progressed(seek, after_at=start, after_id=0, purged=seek.purged + purged)
    rows = tx.rows("bus_snapshot_settled", params)
    if not rows:
        return progressed(seek, is_done=True)
    added = deliver_again(tx, sub, rows)
    last = rows[-1]
    return progressed(
        seek, after_at=last[1], after_id=last[0], replayed=seek.replayed + added,
        is_done=len(rows) < n,
    )  # fmt: skip
