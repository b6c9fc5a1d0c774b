"""Use cases of snapshots: the state of a subscription at a time, to seek back to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.bus.client.declarations import STEP, SubscriptionName
from penstock.bus.from_rows import seek_record, snapshot_record
from penstock.bus.records import NewSnapshot, SeekResult, StoredSnapshot
from penstock.bus.store.replay import Seek
from penstock.bus.store.snapshots import (
    SnapshotRow,
    snapshot_change,
    snapshot_create,
    snapshot_delete,
    snapshot_get,
    snapshot_list,
    snapshot_seek_begin,
    snapshot_seek_count,
    snapshot_seek_step,
)
from penstock.bus.store.topics import SYSTEM, SubscriptionRow, subscription_get, topic_get
from penstock.core.clock import from_datetime
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import Owner
from penstock.core.records.record import Meta, Page
from penstock.db.dry_run import is_dry_run
from penstock.db.store import Transactions, Tx

__all__ = ["Snapshots"]

SnapshotName: TypeAlias = Annotated[
    str, Meta(description="Name of the snapshot.", examples=["before-deploy"], max_length=255)
]
TopicOf: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=255)] | None,
    Meta(description="Return only snapshots of subscriptions to this topic."),
]


class Snapshots:
    """Use cases of snapshots."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def create(self, snapshot: NewSnapshot, *, customer: Owner = None) -> StoredSnapshot:
        """Take a snapshot of a subscription; its name must be new."""
        return self._store.write(
            lambda tx: snapshot_record(
                snapshot_create(
                    tx,
                    snapshot.name,
                    snapshot.subscription,
                    self._customer_key(tx, customer),
                    labels=snapshot.labels,
                    actor=self._actor,
                )
            )
        )

    def get(self, name: SnapshotName, *, customer: Owner = None) -> StoredSnapshot:
        """Return a snapshot."""
        return self._store.read(
            lambda tx: snapshot_record(snapshot_get(tx, name, self._customer_key(tx, customer)))
        )

    def list(
        self,
        *,
        topic: TopicOf = None,
        customer: Owner = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[StoredSnapshot]:
        """List snapshots by name."""

        def body(tx: Tx, after: str) -> list[SnapshotRow]:
            number = self._customer_key(tx, customer)
            of = None if topic is None else topic_get(tx, topic, number).topic_key
            return snapshot_list(tx, number, topic=of, after=after, limit=limit)

        return paged(
            self._names,
            "snapshots",
            lambda after: self._store.read(lambda tx: body(tx, after[0] if after else "")),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.name],
            record=snapshot_record,
            filters={"customer": customer, "topic": topic},
        )

    def change(
        self,
        name: SnapshotName,
        change: Callable[[dict[str, str], datetime], tuple[dict[str, str], datetime]],
        *,
        customer: Owner = None,
    ) -> StoredSnapshot:
        """Replace the labels and the expiry of a snapshot with the result of `change`."""

        def body(tx: Tx) -> StoredSnapshot:
            found = snapshot_get(tx, name, self._customer_key(tx, customer))
            now = snapshot_record(found)
            labels, end = change(now.labels, now.expires_at)
            changed = snapshot_change(tx, found, labels=labels, expires_at=from_datetime(end))
            return snapshot_record(changed)

        return self._store.write(body)

    def delete(self, name: SnapshotName, *, customer: Owner = None) -> None:
        """Delete a snapshot."""
        self._store.write(
            lambda tx: snapshot_delete(tx, name, self._customer_key(tx, customer), self._actor)
        )

    def seek(
        self, name: SnapshotName, subscription: SubscriptionName, *, customer: Owner = None
    ) -> SeekResult:
        """Set a subscription to a snapshot of its topic.

        Messages that were unacked when the snapshot was taken, or published later, are delivered
        again; all others are purged. A dry run counts both, each up to 10,000.
        """

        def named(tx: Tx) -> tuple[SubscriptionRow, SnapshotRow]:
            number = self._customer_key(tx, customer)
            return subscription_get(tx, subscription, number), snapshot_get(tx, name, number)

        def begin(tx: Tx) -> tuple[SubscriptionRow, SnapshotRow, Seek]:
            sub, found = named(tx)
            return sub, found, snapshot_seek_begin(tx, sub, found, self._actor)

        if is_dry_run(self._store):
            return seek_record(self._store.read(lambda tx: snapshot_seek_count(tx, *named(tx))))
        sub, found, seek = self._store.write(begin)
        while not seek.is_done:
            at = seek
            seek = self._store.write(lambda tx: snapshot_seek_step(tx, sub, found, at, STEP))  # noqa: B023 - called at once
        return seek_record(seek)

    def _customer_key(self, tx: Tx, customer: str | None) -> CustomerKey:
        number = self._names.customer_key(tx, customer)
        return SYSTEM if number is None else number
