"""Topics and subscriptions: declaration, lookup, pause, deletion.

Each belongs to a customer (0 is the system) and has a unique name within it; messages and
deliveries refer to them by key. A subscription, its topic and its dead-letter topic belong to the
same customer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from msgspec import structs

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.bus import rules
from penstock.bus.message import BUILTIN_TOPICS, PHASE_TOPICS, SubscriptionSpec, TopicSpec
from penstock.bus.push.push_config import parse_stored_push
from penstock.bus.records import SubscriptionSettings
from penstock.bus.redelivery import RedeliveryPolicy
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.fields import did_you_mean
from penstock.core.naming import SYSTEM_CUSTOMER, CustomerKey, SubscriptionKey, TopicKey
from penstock.db.store import Row, Tx, first

SYSTEM: Final = SYSTEM_CUSTOMER
SUGGESTED_FROM: Final = 100
"""Names among which the closest to an unknown one is searched: few, as any request may miss."""
NO_TRIGGER: Final = "A pipeline of one processor starts without a trigger: use .complete."
KINDS: Final = ("pull", "push", "bound")


class TopicRow(NamedTuple):
    """A topic as stored."""

    topic_key: TopicKey
    customer_key: CustomerKey
    name: str
    retention_us: int
    created_at: int
    created_by: str
    labels: str
    schema_settings: str | None

    @property
    def spec(self) -> TopicSpec:
        """The topic as it would be declared."""
        return TopicSpec(
            name=self.name,
            retention_us=self.retention_us,
            labels=json.loads(self.labels),
            schema_settings=self.schema_settings,
        )


class SubscriptionRow(NamedTuple):
    """A subscription as stored. `dead_letter_name` is also None if that topic was deleted."""

    subscription_key: SubscriptionKey
    customer_key: CustomerKey
    name: str
    topic_key: TopicKey
    topic_name: str
    dead_letter_name: str | None
    is_ordered: bool
    is_paused: bool
    version: int
    created_at: int
    created_by: str
    detached_at: int | None
    kind: str
    ack_deadline_us: int
    min_backoff_us: int
    max_backoff_us: int
    max_attempts: int
    dead_letter_topic: int | None
    retention_us: int
    filter: str | None
    push: str | None
    binding: str | None
    auto_replay: str | None
    replays_max: int
    labels: str
    is_exactly_once: bool
    keeps_acked: bool
    expires_after_us: int | None

    @property
    def subscriber(self) -> FanOutTarget:
        """The part of the subscription that publishing needs."""
        return FanOutTarget(
            self.subscription_key, self.kind, self.filter, self.is_ordered, self.retention_us
        )

    @property
    def spec(self) -> SubscriptionSpec:
        """The subscription as it would be declared."""
        return SubscriptionSpec(
            name=self.name,
            topic=self.topic_name,
            ack_deadline_us=self.ack_deadline_us,
            min_backoff_us=self.min_backoff_us,
            max_backoff_us=self.max_backoff_us,
            max_attempts=self.max_attempts,
            dead_letter_topic=self.dead_letter_name,
            retention_us=self.retention_us,
            is_ordered=self.is_ordered,
            filter=self.filter,
            is_exactly_once=self.is_exactly_once,
            labels=json.loads(self.labels),
        )

    @property
    def policy(self) -> RedeliveryPolicy:
        """The redelivery policy. A deleted dead-letter topic still counts as configured."""
        return RedeliveryPolicy(
            min_backoff_us=self.min_backoff_us,
            max_backoff_us=self.max_backoff_us,
            max_attempts=self.max_attempts,
            has_dead_letters=self.dead_letter_topic is not None,
        )


class FanOutTarget(NamedTuple):
    """The part of a subscription that publishing needs."""

    subscription_key: SubscriptionKey
    kind: str
    filter: str | None
    is_ordered: bool
    retention_us: int


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """A topic with its subscriptions, for publishing."""

    topic_key: TopicKey
    customer_key: CustomerKey
    name: str
    retention_us: int
    subscribers: tuple[FanOutTarget, ...]
    schema_settings: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """Settings of a subscription that only the embedded bus has; some are JSON texts."""

    kind: str = "pull"
    push: str | None = None
    binding: str | None = None
    auto_replay: str | None = None
    replays_max: int = 3
    expires_after_us: int | None = None
    plain: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the record, stored unchanged under the same name."""


NO_EXTRAS: Final = SubscriptionOptions()

_CONVERTED: Final = frozenset({
    "name", "topic", "kind", "ack_deadline", "min_backoff", "max_backoff", "max_attempts",
    "dead_letter_topic", "retention", "is_ordered", "filter", "push", "binding", "auto_replay",
    "replays_max", "labels", "is_exactly_once", "expires_after",
})  # fmt: skip
PLAIN_SETTINGS: Final[Mapping[str, Any]] = {
    one.name: one.default
    for one in structs.fields(SubscriptionSettings)
    if one.name not in _CONVERTED
}
"""Settings of the record that are stored unchanged, with their defaults."""


def channel(subscription_key: SubscriptionKey) -> str:
    """Return the wake-up channel of a subscription."""
    return f"bus:{subscription_key}"


def channels(takers: Iterable[FanOutTarget]) -> set[str]:
    """Return the channels to wake after publishing: one per subscription, plus push and bound."""
    names: set[str] = set()
    for taker in takers:
        names.add(channel(taker.subscription_key))
        if taker.kind != "pull":
            names.add(taker.kind)
    return names


# -- topics ------------------------------------------------------------------------------------


def topic_declare(
    tx: Tx, spec: TopicSpec, customer_key: CustomerKey = SYSTEM, actor: str = ""
) -> TopicRow:
    """Create or change a topic; does nothing if it already matches."""
    rules.check_topic(spec)
    found = topic_find(tx, spec.name, customer_key)
    wanted = {
        "retention_us": spec.retention_us,
        "labels": rules.labels_text(spec.labels),
        "schema_settings": spec.schema_settings,
    }
    if found is not None and all(getattr(found, name) == value for name, value in wanted.items()):
        return found
    params = {**wanted, "customer": customer_key, "name": spec.name, "actor": actor}
    topic = TopicRow._make(tx.rows("bus_topic_put", params)[0])
    action = "created" if found is None else "changed"
    journal_note(tx, ("topic", topic.topic_key, customer_key), action, actor, topic.name)
    return topic


def topic_ensure(
    tx: Tx, name: str, retention_us: int, customer_key: CustomerKey = SYSTEM, actor: str = ""
) -> TopicRow:
    """Create a topic or change its retention; its labels and its schema stay unchanged."""
    found = topic_find(tx, name, customer_key)
    spec = TopicSpec(name=name, retention_us=retention_us)
    if found is not None:
        labels = json.loads(found.labels)
        spec = replace(spec, labels=labels, schema_settings=found.schema_settings)
    return topic_declare(tx, spec, customer_key, actor)


def topic_find(tx: Tx, name: str, customer_key: CustomerKey = SYSTEM) -> TopicRow | None:
    """Return a topic by name, or None."""
    row = first(tx.rows("bus_topic_get", {"customer": customer_key, "name": name}))
    return None if row is None else TopicRow._make(row)


def topic_get(tx: Tx, name: str, customer_key: CustomerKey = SYSTEM) -> TopicRow:
    """Return a topic by name, creating it if it is built in; raise NotFound if there is none."""
    found = topic_find(tx, name, customer_key)
    if found is not None:
        return found
    if customer_key != SYSTEM or not is_builtin(tx, name):
        known = [one.name for one in topic_list(tx, customer_key, limit=SUGGESTED_FROM)]
        is_single = name.endswith(".trigger") and is_builtin(tx, f"{name[:-8]}.complete")
        raise NotFound("topic", name, NO_TRIGGER if is_single else did_you_mean(name, known))
    return topic_declare(tx, TopicSpec(name=name))


def is_builtin(tx: Tx, name: str) -> bool:
    """Whether a topic is built in, so that it exists without being created."""
    stem, _, last = name.rpartition(".")
    known = {"stem": stem, "with_flow": last == "trigger"}
    is_phase = f".{last}" in PHASE_TOPICS and bool(tx.rows("bus_phase_known", known))
    return is_phase or name in BUILTIN_TOPICS


def topic_list(
    tx: Tx, customer_key: CustomerKey = SYSTEM, *, after: str = "", limit: int = 100
) -> list[TopicRow]:
    """Return topics by name."""
    params = {"customer": customer_key, "after": after, "limit": limit}
    return [TopicRow._make(row) for row in tx.rows("bus_topic_list", params)]


def topic_delete(
    tx: Tx, name: str, customer_key: CustomerKey = SYSTEM, actor: str = ""
) -> TopicRow:
    """Delete a topic. Its subscriptions keep their deliveries and receive no more messages."""
    topic = topic_get(tx, name, customer_key)
    tx.rows("bus_topic_delete", {"topic": topic.topic_key, "customer": customer_key})
    journal_note(tx, ("topic", topic.topic_key, customer_key), "deleted", actor, topic.name)
    return topic


def topic_open(tx: Tx, topic_key: TopicKey) -> OpenTopic | None:
    """Return a topic by key with its subscriptions; None if it was deleted."""
    return _open_topic_of(tx.rows("bus_topic_open", {"topic": topic_key}))


def topic_open_named(tx: Tx, name: str, customer_key: CustomerKey = SYSTEM) -> OpenTopic:
    """Return a topic by name with its subscriptions. Raises NotFound if there is none."""
    found = topic_open_find(tx, name, customer_key)
    if found is None:
        found = topic_open(tx, topic_get(tx, name, customer_key).topic_key)
        assert found is not None
    return found


def topic_open_find(tx: Tx, name: str, customer_key: CustomerKey = SYSTEM) -> OpenTopic | None:
    """Return a topic by name with its subscriptions; None if there is none."""
    return _open_topic_of(tx.rows("bus_topic_open_named", {"customer": customer_key, "name": name}))


def _open_topic_of(rows: list[Row]) -> OpenTopic | None:
    if not rows:
        return None
    takers = tuple(
        FanOutTarget(row[4], row[5], row[6], bool(row[7]), row[8])
        for row in rows
        if row[4] is not None
    )
    topic, customer, name, retention_us = rows[0][:4]
    return OpenTopic(topic, customer, name, retention_us, takers, rows[0][9])


# -- subscriptions -----------------------------------------------------------------------------


def subscription_declare(
    tx: Tx,
    spec: SubscriptionSpec,
    customer_key: CustomerKey = SYSTEM,
    actor: str = "",
    extras: SubscriptionOptions = NO_EXTRAS,
) -> SubscriptionRow:
    """Create or change a subscription; does nothing if it already matches.

    Its topics must exist. Topic and ordering cannot change, because existing deliveries depend on
    them.
    """
    rules.check_subscription(spec)
    _check_extras(extras)
    topic = topic_get(tx, spec.topic, customer_key)
    dead = None
    if spec.dead_letter_topic is not None:
        dead = topic_get(tx, spec.dead_letter_topic, customer_key).topic_key
    wanted = {
        "ack_deadline_us": spec.ack_deadline_us,
        "min_backoff_us": spec.min_backoff_us,
        "max_backoff_us": spec.max_backoff_us,
        "max_attempts": spec.max_attempts,
        "dead_letter_topic": dead,
        "retention_us": spec.retention_us,
        "filter": spec.filter,
        "kind": extras.kind,
        "push": extras.push,
        "binding": extras.binding,
        "auto_replay": extras.auto_replay,
        "replays_max": extras.replays_max,
        "labels": rules.labels_text(spec.labels),
        "is_exactly_once": spec.is_exactly_once,
        "expires_after_us": extras.expires_after_us,
        **PLAIN_SETTINGS,
        **extras.plain,
    }
    found = subscription_find(tx, spec.name, customer_key)
    if found is None:
        made = {"topic": topic.topic_key, "name": spec.name, "is_ordered": spec.is_ordered}
        params = {**wanted, **made, "customer": customer_key, "actor": actor}
        if not tx.rows("bus_subscription_add", params):
            raise Conflict(
                f"subscription {spec.name} is being created by another request; try again"
            )
        found = subscription_get(tx, spec.name, customer_key)
        journal_note(
            tx, ("subscription", found.subscription_key, customer_key), "created", actor, spec.name
        )
        return found
    _check_immutable(found, spec)
    if all(getattr(found, name) == value for name, value in wanted.items()):
        return found
    params = {**wanted, "subscription": found.subscription_key, "customer": customer_key}
    tx.rows("bus_subscription_change", params)
    journal_note(
        tx, ("subscription", found.subscription_key, customer_key), "changed", actor, spec.name
    )
    return subscription_get(tx, spec.name, customer_key)


def _check_extras(extras: SubscriptionOptions) -> None:
    if extras.kind not in KINDS:
        raise InvalidInput("kind", "pull, push or bound", extras.kind)
    if (extras.kind == "push") is not (extras.push is not None):
        fix = "Set push.push_endpoint to the URL that receives messages."
        raise InvalidInput("push", "push settings if and only if kind is push", extras.push, fix)
    if extras.push is not None:
        parse_stored_push(extras.push)
    if not 0 <= extras.replays_max <= rules.REPLAYS_MAX:
        raise InvalidInput("replays_max", f"0 to {rules.REPLAYS_MAX}", extras.replays_max)


def _check_immutable(found: SubscriptionRow, spec: SubscriptionSpec) -> None:
    fix = "Delete the subscription and create it again."
    if found.topic_name != spec.topic:
        raise InvalidInput("topic", found.topic_name, spec.topic, fix)
    if found.is_ordered != spec.is_ordered:
        fix = f"Ordering (enable_message_ordering, --ordered) cannot change. {fix}"
        raise InvalidInput("is_ordered", str(found.is_ordered), spec.is_ordered, fix)


def subscription_find(
    tx: Tx, name: str, customer_key: CustomerKey = SYSTEM
) -> SubscriptionRow | None:
    """Return a subscription by name, or None."""
    row = first(tx.rows("bus_subscription_get", {"customer": customer_key, "name": name}))
    return None if row is None else subscription_of_row(row)


def subscription_get(tx: Tx, name: str, customer_key: CustomerKey = SYSTEM) -> SubscriptionRow:
    """Return a subscription by name. Raises NotFound if there is none."""
    found = subscription_find(tx, name, customer_key)
    if found is None:
        wanted = SubscriptionFilter(customer=customer_key, limit=SUGGESTED_FROM)
        known = [one.name for one in subscription_list(tx, wanted)]
        raise NotFound("subscription", name, did_you_mean(name, known))
    return found


def subscription_get_by_key(
    tx: Tx, subscription_key: SubscriptionKey, *, deleted: bool = False
) -> SubscriptionRow | None:
    """Return a subscription by key; None if it is deleted, unless `deleted` is set."""
    params = {"subscription": subscription_key, "deleted": deleted}
    row = first(tx.rows("bus_subscription_get_by_key", params))
    return None if row is None else subscription_of_row(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFilter:
    """Filter and page of a list of subscriptions; `customer` None matches all customers."""

    customer: int | None = None
    topic: int | None = None
    kind: str | None = None
    after: str = ""
    limit: int = 100


def subscription_list(tx: Tx, wanted: SubscriptionFilter) -> list[SubscriptionRow]:
    """Return subscriptions by name."""
    params: dict[str, Any] = {name: getattr(wanted, name) for name in SubscriptionFilter.__slots__}
    return [subscription_of_row(row) for row in tx.rows("bus_subscription_list", params)]


def subscription_pause(
    tx: Tx, name: str, customer_key: CustomerKey = SYSTEM, *, is_paused: bool, actor: str = ""
) -> SubscriptionRow:
    """Pause or resume a subscription. Leased deliveries can still be acked."""
    found = subscription_get(tx, name, customer_key)
    if found.is_paused == is_paused:
        return found
    params = {
        "subscription": found.subscription_key,
        "customer": customer_key,
        "is_paused": is_paused,
    }
    tx.rows("bus_subscription_pause", params)
    action = "paused" if is_paused else "resumed"
    journal_note(tx, ("subscription", found.subscription_key, customer_key), action, actor, name)
    return found._replace(is_paused=is_paused, version=found.version + 1)


def subscription_delete(
    tx: Tx, name: str, customer_key: CustomerKey = SYSTEM, actor: str = ""
) -> SubscriptionRow:
    """Delete a subscription. The delivery sweeper purges its deliveries."""
    found = subscription_get(tx, name, customer_key)
    params = {"subscription": found.subscription_key, "customer": customer_key}
    tx.rows("bus_subscription_delete", params)
    journal_note(tx, ("subscription", found.subscription_key, customer_key), "deleted", actor, name)
    return found


def subscription_detach(
    tx: Tx, name: str, customer_key: CustomerKey = SYSTEM, actor: str = ""
) -> SubscriptionRow:
    """Detach a subscription: it receives no more messages and cannot be pulled. Idempotent.

    The caller purges its deliveries.
    """
    found = subscription_get(tx, name, customer_key)
    if found.detached_at is not None:
        return found
    params = {"subscription": found.subscription_key, "customer": customer_key}
    tx.rows("bus_subscription_detach", params)
    what = ("subscription", found.subscription_key, customer_key)
    journal_note(tx, what, "detached", actor, name)
    return found._replace(detached_at=tx.now(), version=found.version + 1)


def subscriptions_without_dead_letters(tx: Tx, limit: int = 20) -> list[str]:
    """Return subscriptions without a dead-letter topic whose messages can fail permanently."""
    return [row[0] for row in tx.rows("bus_without_dead_letters", {"limit": limit})]


def subscription_of_row(row: Row) -> SubscriptionRow:
    """Build a subscription from a row of `subscription_columns`."""
    found = SubscriptionRow._make(row)
    return found._replace(
        is_ordered=bool(found.is_ordered),
        is_paused=bool(found.is_paused),
        is_exactly_once=bool(found.is_exactly_once),
        keeps_acked=bool(found.keeps_acked),
    )


def journal_note(
    tx: Tx, what: tuple[str, int, CustomerKey], action: str, actor: str, why: str
) -> None:
    """Append a journal entry about a subject (kind, key, customer)."""
    kind, subject, customer = what
    entry = Entry(kind, subject, customer or None, action, actor or "penstock", why=why)
    journal_append_many(tx, [entry])
