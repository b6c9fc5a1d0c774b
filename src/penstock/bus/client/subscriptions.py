"""Use cases of subscriptions: declare and read them, and pull messages from them.

The operations that every transport has (pull, ack, nack, extend) call the embedded bus for a
customer. Pausing, seeking by time, purging and the backlog use the store directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.bus import rules
from penstock.bus.client.declarations import (
    STEP,
    SubscriptionDeclarations,
    SubscriptionName,
)
from penstock.bus.client.requests import check_delays
from penstock.bus.from_rows import (
    received_record,
    seek_record,
    subscription_detail_record,
    subscription_record,
)
from penstock.bus.message import Handled, Nack, ServiceRevision, SettleResult
from penstock.bus.records import (
    ReceivedMessage,
    SeekResult,
    StoredSubscription,
    SubscriptionDetail,
    SubscriptionKind,
)
from penstock.bus.store.backlog import BacklogRow, backlog, backlogs, delivery_counters
from penstock.bus.store.bindings import customer_name
from penstock.bus.store.deliveries import PULL_MAX
from penstock.bus.store.replay import (
    Seek,
    delivery_purge,
    purge_count,
    seek_begin,
    seek_count,
    seek_step,
)
from penstock.bus.store.topics import (
    SYSTEM,
    SubscriptionFilter,
    SubscriptionRow,
    channel,
    is_builtin,
    subscription_get,
    subscription_list,
    topic_find,
)
from penstock.bus.store.why_reads import subscription_fact
from penstock.bus.transports.embedded import WAIT_MAX, BusOperations, EmbeddedBus
from penstock.bus.why import why_subscription
from penstock.core.clock import request_time
from penstock.core.errors import NotFound
from penstock.core.naming import CustomerKey, SubscriptionKey
from penstock.core.records.parameters import Owner
from penstock.core.records.record import Meta, Page, Time, Wire
from penstock.db.dry_run import is_dry_run
from penstock.db.store import StoreView, Tx
from penstock.flows.explain.from_rows import cause_tree_record
from penstock.flows.explain.records import CauseTree
from penstock.flows.explain.times import LocalClock

__all__ = ["Subscriptions", "WaitingSubscriptions"]

TopicFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=255)] | None,
    Meta(description="Return only subscriptions to this topic."),
]
KindFilter: TypeAlias = Annotated[
    SubscriptionKind | None, Meta(description="Return only subscriptions of this kind.")
]
SeekTime: TypeAlias = Annotated[
    Time,
    Wire("time"),
    Meta(description="ISO 8601 time; messages published since then are delivered again."),
]
AckIds: TypeAlias = Annotated[
    Sequence[str],
    Meta(description="Ack ids as returned by pull.", min_length=1, max_length=rules.BATCH_MAX),
]
Nacks: TypeAlias = Annotated[
    Sequence[Nack],
    Meta(description="Deliveries with their reasons.", min_length=1, max_length=rules.BATCH_MAX),
]
HandledDeliveries: TypeAlias = Annotated[
    Annotated[Sequence[Handled], Meta(min_length=1, max_length=rules.BATCH_MAX)] | None,
    Meta(
        description="How each delivery was handled, in the order of the ack ids, for the execution "
        "log; omit it if unknown."
    ),
]
ReportingService: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, max_length=rules.REPORTER_MAX)] | None,
    Meta(description="Service that handled the deliveries, for the execution log."),
]
ReportingRevision: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, max_length=rules.REPORTER_MAX)] | None,
    Meta(description="Revision of that service's code."),
]
Extension: TypeAlias = Annotated[
    int,
    Wire("ack_deadline_seconds"),
    Meta(
        description="New deadline in seconds from now; 0 returns them to the subscription.",
        ge=0,
        le=rules.EXTENSION_MAX_S,
    ),
]
MaxMessages: TypeAlias = Annotated[
    int, Meta(description="Maximum number of messages to return.", ge=1, le=PULL_MAX)
]
WaitSeconds: TypeAlias = Annotated[
    float,
    Meta(description="Seconds to wait for a message if none is ready.", ge=0, le=WAIT_MAX),
]
Received: TypeAlias = Annotated[
    list[ReceivedMessage],
    Meta(description="Leased messages, oldest first; empty if none is ready."),
]
Outcomes: TypeAlias = Annotated[
    list[SettleResult],
    Meta(
        description="The outcome of each item, in the order of the request. `stale` means that "
        "nothing changed because the delivery was settled or redelivered."
    ),
]
HasBacklog: TypeAlias = Annotated[
    bool, Meta(description="Return the backlog of each subscription as well.")
]
Purged: TypeAlias = Annotated[int, Meta(description="Number of deliveries that were removed.")]


class WatchedBacklog(NamedTuple):
    """The backlog of a subscription."""

    customer_id: str | None
    """Customer that owns the subscription; None for the system."""
    subscription: str
    backlog: BacklogRow


Backlogs: TypeAlias = list[WatchedBacklog]
_Rows: TypeAlias = list[SubscriptionRow]


class Subscriptions(SubscriptionDeclarations):
    """Use cases of subscriptions and their deliveries."""

    def list(
        self,
        *,
        topic: TopicFilter = None,
        kind: KindFilter = None,
        customer: Owner = None,
        has_backlog: HasBacklog = False,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[StoredSubscription]:
        """List subscriptions by name."""
        waiting: dict[SubscriptionKey, BacklogRow] = {}

        def body(tx: Tx, after: str) -> _Rows:
            number = self._customer_key(tx, customer)
            of = None
            if topic is not None:
                found = topic_find(tx, topic, number)
                if found is None:
                    if number == SYSTEM and is_builtin(tx, topic):
                        return []  # a built-in topic is created by its first subscription
                    raise NotFound("topic", topic)
                of = found.topic_key
            wanted = SubscriptionFilter(
                customer=number, topic=of, kind=kind, after=after, limit=limit
            )
            rows = subscription_list(tx, wanted)
            if has_backlog:
                waiting.update(backlogs(tx, [row.subscription_key for row in rows]))
            return rows

        return paged(
            self._names,
            "subscriptions",
            lambda after: self._store.read(lambda tx: body(tx, after[0] if after else "")),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.name],
            record=lambda row: subscription_record(row, waiting.get(row.subscription_key)),
            filters={"customer": customer, "topic": topic, "kind": kind},
        )

    def get(self, name: SubscriptionName, *, customer: Owner = None) -> SubscriptionDetail:
        """Return a subscription with its backlog and counters."""

        def body(tx: Tx) -> SubscriptionDetail:
            sub = subscription_get(tx, name, self._customer_key(tx, customer))
            return subscription_detail_record(
                sub,
                backlog(tx, sub.subscription_key),
                delivery_counters(tx, sub.subscription_key),
            )

        return self._store.read(body)

    def why(self, name: SubscriptionName, *, customer: Owner = None) -> CauseTree:
        """Explain why messages of a subscription are not handled, as a tree of causes."""

        def body(tx: Tx) -> CauseTree:
            sub = subscription_get(tx, name, self._customer_key(tx, customer))
            now = tx.now()
            cause = why_subscription(subscription_fact(tx, sub), LocalClock(now))
            return cause_tree_record(cause, now, "UTC")

        return self._store.read(body)

    def backlogs(self, limit: int = 200) -> Backlogs:
        """Return the backlogs of all customers' subscriptions."""
        self._names.require_unscoped("subscriptions of all customers")

        def body(tx: Tx) -> Backlogs:
            rows = subscription_list(tx, SubscriptionFilter(limit=limit))
            waiting = backlogs(tx, [sub.subscription_key for sub in rows])
            return [
                WatchedBacklog(_owner(tx, sub), sub.name, waiting[sub.subscription_key])
                for sub in rows
            ]

        return self._store.read(body)

    def seek(self, name: SubscriptionName, to: SeekTime, *, customer: Owner = None) -> SeekResult:
        """Seek a subscription to a time. Newer messages are delivered again, older ones purged.

        A time in the future purges everything published so far. A dry run counts both, up to
        10,000 each.
        """
        at = request_time(to, "time")
        if is_dry_run(self._store):
            return seek_record(
                self._store.read(lambda tx: self._seek_count(tx, name, at, customer))
            )
        sub, seek = self._store.write(lambda tx: self._begin(tx, name, at, customer))
        while not seek.is_done:
            seek = self._store.write(lambda tx, at=seek: seek_step(tx, sub, at, STEP))  # type: ignore[misc]
        return seek_record(seek)

    def purge(self, name: SubscriptionName, *, customer: Owner = None) -> Purged:
        """Remove all unsettled deliveries of a subscription. A dry run counts up to 10,000."""
        before = self._store.read(lambda tx: tx.now()) + 1
        if is_dry_run(self._store):

            def counted(tx: Tx) -> int:
                sub = subscription_get(tx, name, self._customer_key(tx, customer))
                return purge_count(tx, sub, before=before)

            return self._store.read(counted)

        def step(tx: Tx) -> int:
            sub = subscription_get(tx, name, self._customer_key(tx, customer))
            return delivery_purge(tx, sub, before=before, n=STEP, actor=self._actor)

        total = 0
        while count := self._store.write(step):
            total += count
        return total

    # -- deliveries ----------------------------------------------------------------------------

    def pull(
        self,
        name: SubscriptionName,
        *,
        max_messages: MaxMessages = 100,
        wait_seconds: WaitSeconds = 0.0,
        customer: Owner = None,
    ) -> Received:
        """Lease messages of a subscription. With `wait_seconds` the request waits if none is ready.

        Each must be acked, nacked or extended before its deadline.
        """
        del wait_seconds  # a request that is one transaction cannot wait
        found = self._bus(customer).pull(name, max_messages=max_messages)
        return [received_record(one) for one in found]

    def ack(
        self,
        name: SubscriptionName,
        ack_ids: AckIds,
        *,
        handled: HandledDeliveries = None,
        service: ReportingService = None,
        revision: ReportingRevision = None,
        customer: Owner = None,
    ) -> Outcomes:
        """Acknowledge deliveries. A stale ack id changes nothing and is reported as `stale`."""
        by = None if service is None else ServiceRevision(service, revision or "")
        return self._bus(customer).ack(name, ack_ids, handled=handled or (), by=by)

    def nack(
        self,
        name: SubscriptionName,
        nacks: Nacks,
        *,
        service: ReportingService = None,
        revision: ReportingRevision = None,
        customer: Owner = None,
    ) -> Outcomes:
        """Return deliveries, each with its reason. They are redelivered or become dead letters."""
        check_delays(nacks)
        by = None if service is None else ServiceRevision(service, revision or "")
        return self._bus(customer).nack(name, nacks, by=by)

    def extend(
        self,
        name: SubscriptionName,
        ack_ids: AckIds,
        seconds: Extension,
        *,
        customer: Owner = None,
    ) -> Outcomes:
        """Extend the ack deadlines of deliveries."""
        return self._bus(customer).extend(name, ack_ids, seconds)

    def release(
        self, name: SubscriptionName, ack_ids: AckIds, *, customer: Owner = None
    ) -> Outcomes:
        """Return unprocessed deliveries. They are ready immediately and no attempt is counted."""
        return self._bus(customer).release(name, ack_ids)

    def channel(self, name: str, *, customer: str | None = None) -> str:
        """Return the wake-up channel that signals new messages of a subscription."""

        def body(tx: Tx) -> str:
            return channel(
                subscription_get(tx, name, self._customer_key(tx, customer)).subscription_key
            )

        return self._store.read(body)

    def _bus(self, customer: str | None) -> BusOperations:
        return BusOperations(self._store, customer_key=self._owner(customer), actor=self._actor)

    def _owner(self, customer: str | None) -> CustomerKey:
        if customer is None and self._names.customer_id is None:
            return SYSTEM
        return self._store.read(lambda tx: self._customer_key(tx, customer))

    def _seek_count(self, tx: Tx, name: str, to: int, customer: str | None) -> Seek:
        return seek_count(tx, subscription_get(tx, name, self._customer_key(tx, customer)), to)

    def _begin(
        self, tx: Tx, name: str, to: int, customer: str | None
    ) -> tuple[SubscriptionRow, Seek]:
        sub = subscription_get(tx, name, self._customer_key(tx, customer))
        return sub, seek_begin(tx, sub, to, self._actor)


class WaitingSubscriptions(Subscriptions):
    """The same use cases over a store that can also wait for messages."""

    def __init__(self, store: StoreView, names: NameResolver, actor: str) -> None:
        super().__init__(store, names, actor)
        self._view = store

    def pull(
        self,
        name: SubscriptionName,
        *,
        max_messages: MaxMessages = 100,
        wait_seconds: WaitSeconds = 0.0,
        customer: Owner = None,
    ) -> Received:
        """Lease messages; each must be acked, nacked or extended before its deadline.

        If none is ready, wait up to `wait_seconds` for the first.
        """
        # This client's store is already scoped, or may see all customers.
        bus = EmbeddedBus(
            self._view, customer_key=self._owner(customer), is_confined=True, actor=self._actor
        )
        found = bus.pull(name, max_messages=max_messages, wait_seconds=wait_seconds)
        return [received_record(one) for one in found]


def _owner(tx: Tx, sub: SubscriptionRow) -> str | None:
    return None if sub.customer_key == SYSTEM else customer_name(tx, sub.customer_key)
