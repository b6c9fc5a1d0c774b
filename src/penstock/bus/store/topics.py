"""Topics and subscriptions: who may publish where, and who takes what.

Each belongs to a customer (0 is the house) and is named once for it; messages and deliveries carry
numbers. A subscription, its topic and its dead-letter topic belong to the same customer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.audit.store.journal import Entry, journal_append_many
from penstock.bus import rules
from penstock.bus.message import BUILTIN_TOPICS, PHASE_TOPICS, SubscriptionSpec, TopicSpec
from penstock.bus.push.push_config import load_push
from penstock.bus.redelivery import Policy
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.db.store import Row, Tx, first

HOUSE: Final = 0
KINDS: Final = ("pull", "push", "bound")


class Topic(NamedTuple):
    """A topic as stored."""

    topic: int
    customer: int
    name: str
    retention_us: int
    created_at: int
    created_by: str


class Subscription(NamedTuple):
    """A subscription as stored; `dead_letter_name` is None also when that topic is gone."""

    subscription: int
    customer: int
    name: str
    kind: str
    topic: int
    topic_name: str
    ack_deadline_us: int
    min_backoff_us: int
    max_backoff_us: int
    max_attempts: int
    dead_letter_topic: int | None
    dead_letter_name: str | None
    retention_us: int
    is_ordered: bool
    filter: str | None
    push: str | None
    binding: str | None
    auto_replay: str | None
    replays_max: int
    is_paused: bool
    version: int
    created_at: int
    created_by: str

    @property
    def taker(self) -> Taker:
        """As publishing sees it."""
        return Taker(self.subscription, self.kind, self.filter, self.is_ordered, self.retention_us)

    @property
    def policy(self) -> Policy:
        """What it says about failures; one whose dead-letter topic is gone still has a policy."""
        return Policy(
            min_backoff_us=self.min_backoff_us,
            max_backoff_us=self.max_backoff_us,
            max_attempts=self.max_attempts,
            has_dead_letters=self.dead_letter_topic is not None,
        )


class Taker(NamedTuple):
    """A subscription as publishing sees it."""

    subscription: int
    kind: str
    filter: str | None
    is_ordered: bool
    retention_us: int


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """A topic with those who take its messages."""

    topic: int
    customer: int
    name: str
    retention_us: int
    takers: tuple[Taker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a subscription has beyond what every transport knows; JSON texts of their owners."""

    kind: str = "pull"
    push: str | None = None
    binding: str | None = None
    auto_replay: str | None = None
    replays_max: int = 3


PLAIN: Final = Extras()


def channel(subscription: int) -> str:
    """The channel on which a subscription's hints travel."""
    return f"bus:{subscription}"


def channels(takers: Iterable[Taker]) -> set[str]:
    """Whom to wake after publishing: pullers of each, the pusher, who serves bound ones."""
    names: set[str] = set()
    for taker in takers:
        names.add(channel(taker.subscription))
        if taker.kind != "pull":
            names.add(taker.kind)
    return names


# -- topics ------------------------------------------------------------------------------------


def topic_declare(tx: Tx, spec: TopicSpec, customer: int = HOUSE, actor: str = "") -> Topic:
    """Make a topic as described; again is a no-op, a change is applied."""
    rules.check_topic(spec)
    found = topic_find(tx, spec.name, customer)
    if found is not None and found.retention_us == spec.retention_us:
        return found
    params = {
        "customer": customer,
        "name": spec.name,
        "retention_us": spec.retention_us,
        "actor": actor,
    }
    topic = Topic._make(tx.rows("bus_topic_put", params)[0])
    action = "created" if found is None else "changed"
    note(tx, ("topic", topic.topic, customer), action, actor, topic.name)
    return topic


def topic_find(tx: Tx, name: str, customer: int = HOUSE) -> Topic | None:
    """A topic by name."""
    row = first(tx.rows("bus_topic_get", {"customer": customer, "name": name}))
    return None if row is None else Topic._make(row)


def topic_get(tx: Tx, name: str, customer: int = HOUSE) -> Topic:
    """A topic by name, made when it is a built-in one; NotFound without."""
    found = topic_find(tx, name, customer)
    if found is not None:
        return found
    if customer != HOUSE or not is_builtin(tx, name):
        raise NotFound("topic", name)
    return topic_declare(tx, TopicSpec(name=name))


def is_builtin(tx: Tx, name: str) -> bool:
    """Whether the house has this topic for whoever subscribes to it."""
    if name in BUILTIN_TOPICS:
        return True
    stem, dot, last = name.rpartition(".")
    return dot + last in PHASE_TOPICS and bool(tx.rows("bus_phase_known", {"stem": stem}))


def topic_list(tx: Tx, customer: int = HOUSE, *, after: str = "", limit: int = 100) -> list[Topic]:
    """Topics by name."""
    params = {"customer": customer, "after": after, "limit": limit}
    return [Topic._make(row) for row in tx.rows("bus_topic_list", params)]


def topic_delete(tx: Tx, name: str, customer: int = HOUSE, actor: str = "") -> Topic:
    """Delete a topic; subscriptions keep what they were given and get nothing more."""
    topic = topic_get(tx, name, customer)
    tx.rows("bus_topic_delete", {"topic": topic.topic, "customer": customer})
    note(tx, ("topic", topic.topic, customer), "deleted", actor, topic.name)
    return topic


def topic_open(tx: Tx, topic: int) -> OpenTopic | None:
    """A topic by number with those who take its messages; None when it is gone."""
    return _opened(tx.rows("bus_topic_open", {"topic": topic}))


def topic_open_named(tx: Tx, name: str, customer: int = HOUSE) -> OpenTopic:
    """A topic by name with those who take its messages; NotFound without."""
    found = topic_open_try(tx, name, customer)
    if found is None:
        found = topic_open(tx, topic_get(tx, name, customer).topic)
        assert found is not None
    return found


def topic_open_try(tx: Tx, name: str, customer: int = HOUSE) -> OpenTopic | None:
    """A topic by name with those who take its messages; None when there is none."""
    return _opened(tx.rows("bus_topic_open_named", {"customer": customer, "name": name}))


def _opened(rows: list[Row]) -> OpenTopic | None:
    if not rows:
        return None
    takers = tuple(
        Taker(row[4], row[5], row[6], bool(row[7]), row[8]) for row in rows if row[4] is not None
    )
    topic, customer, name, retention_us = rows[0][:4]
    return OpenTopic(topic, customer, name, retention_us, takers)


# -- subscriptions -----------------------------------------------------------------------------


def subscription_declare(
    tx: Tx, spec: SubscriptionSpec, customer: int = HOUSE, actor: str = "", extras: Extras = PLAIN
) -> Subscription:
    """Make a subscription as described; again is a no-op, a change is applied.

    Its topics must exist. Topic and order cannot change: what waits was fanned out by them.
    """
    rules.check_subscription(spec)
    _check_extras(extras)
    topic = topic_get(tx, spec.topic, customer)
    dead = None
    if spec.dead_letter_topic is not None:
        dead = topic_get(tx, spec.dead_letter_topic, customer).topic
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
    }
    found = subscription_find(tx, spec.name, customer)
    if found is None:
        made = {"topic": topic.topic, "name": spec.name, "is_ordered": spec.is_ordered}
        params = {**wanted, **made, "customer": customer, "actor": actor}
        if not tx.rows("bus_subscription_add", params):
            raise Conflict(f"subscription {spec.name} is being made by somebody else; try again")
        found = subscription_get(tx, spec.name, customer)
        note(tx, ("subscription", found.subscription, customer), "created", actor, spec.name)
        return found
    _check_kept(found, spec)
    if all(getattr(found, name) == value for name, value in wanted.items()):
        return found
    params = {**wanted, "subscription": found.subscription, "customer": customer}
    tx.rows("bus_subscription_change", params)
    note(tx, ("subscription", found.subscription, customer), "changed", actor, spec.name)
    return subscription_get(tx, spec.name, customer)


def _check_extras(extras: Extras) -> None:
    if extras.kind not in KINDS:
        raise InvalidInput("kind", "pull, push or bound", extras.kind)
    if (extras.kind == "push") is not (extras.push is not None):
        fix = "Say where messages are posted: push.push_endpoint."
        raise InvalidInput("push", "for kind push, and for no other", extras.push, fix)
    if extras.push is not None:
        load_push(extras.push)
    if not 0 <= extras.replays_max <= rules.REPLAYS_MAX:
        raise InvalidInput("replays_max", f"0 to {rules.REPLAYS_MAX}", extras.replays_max)


def _check_kept(found: Subscription, spec: SubscriptionSpec) -> None:
    fix = "Delete the subscription and make it anew."
    if found.topic_name != spec.topic:
        raise InvalidInput("topic", found.topic_name, spec.topic, fix)
    if found.is_ordered != spec.is_ordered:
        fix = f"The order (enable_message_ordering, --ordered) is for good. {fix}"
        raise InvalidInput("is_ordered", str(found.is_ordered), spec.is_ordered, fix)


def subscription_find(tx: Tx, name: str, customer: int = HOUSE) -> Subscription | None:
    """A subscription by name."""
    row = first(tx.rows("bus_subscription_get", {"customer": customer, "name": name}))
    return None if row is None else subscription_of_row(row)


def subscription_get(tx: Tx, name: str, customer: int = HOUSE) -> Subscription:
    """A subscription by name; NotFound without."""
    found = subscription_find(tx, name, customer)
    if found is None:
        raise NotFound("subscription", name)
    return found


def subscription_read(tx: Tx, subscription: int, *, deleted: bool = False) -> Subscription | None:
    """A subscription by number; None when it is gone, unless `deleted` ones are asked for too."""
    params = {"subscription": subscription, "deleted": deleted}
    row = first(tx.rows("bus_subscription_read", params))
    return None if row is None else subscription_of_row(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFilter:
    """Which subscriptions a list shows; `customer` None means everybody's."""

    customer: int | None = None
    topic: int | None = None
    kind: str | None = None
    after: str = ""
    limit: int = 100


def subscription_list(tx: Tx, wanted: SubscriptionFilter) -> list[Subscription]:
    """Subscriptions by name."""
    params: dict[str, Any] = {name: getattr(wanted, name) for name in SubscriptionFilter.__slots__}
    return [subscription_of_row(row) for row in tx.rows("bus_subscription_list", params)]


def subscription_numbers(tx: Tx, after: int = 0, limit: int = 1_000) -> list[int]:
    """Numbers of living subscriptions, in order."""
    params = {"after": after, "limit": limit}
    return [row[0] for row in tx.rows("bus_subscription_numbers", params)]


def subscription_pause(
    tx: Tx, name: str, customer: int = HOUSE, *, is_paused: bool, actor: str = ""
) -> Subscription:
    """Stop handing over, or go on; what is out may still be acked."""
    found = subscription_get(tx, name, customer)
    if found.is_paused == is_paused:
        return found
    params = {"subscription": found.subscription, "customer": customer, "is_paused": is_paused}
    tx.rows("bus_subscription_pause", params)
    action = "paused" if is_paused else "resumed"
    note(tx, ("subscription", found.subscription, customer), action, actor, name)
    return found._replace(is_paused=is_paused, version=found.version + 1)


def subscription_delete(tx: Tx, name: str, customer: int = HOUSE, actor: str = "") -> Subscription:
    """Delete a subscription; what waits in it is purged by the courier."""
    found = subscription_get(tx, name, customer)
    params = {"subscription": found.subscription, "customer": customer}
    tx.rows("bus_subscription_delete", params)
    note(tx, ("subscription", found.subscription, customer), "deleted", actor, name)
    return found


def subscriptions_without_dead_letters(tx: Tx, limit: int = 20) -> list[str]:
    """Names of subscriptions that can be sent poison and have nowhere to put it."""
    return [row[0] for row in tx.rows("bus_without_dead_letters", {"limit": limit})]


def subscription_of_row(row: Row) -> Subscription:
    """A subscription from a row of `subscription_columns`."""
    found = Subscription._make(row)
    return found._replace(is_ordered=bool(found.is_ordered), is_paused=bool(found.is_paused))


def note(tx: Tx, what: tuple[str, int, int], action: str, actor: str, why: str) -> None:
    """One line in the journal about a (kind, number, customer)."""
    kind, subject, customer = what
    entry = Entry(kind, subject, customer or None, action, actor or "penstock", why=why)
    journal_append_many(tx, [entry])
