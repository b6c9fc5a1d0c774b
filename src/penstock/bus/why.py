"""Explanations of why a message was not handled or a subscription makes no progress: trees of
causes.

The tree has the same form as in `flows.explain.why`. Pure: `bus.store.why_reads` loads the facts,
and the API and the CLI show the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.flows.explain.commands import suggestion
from penstock.flows.explain.times import LocalClock, format_times
from penstock.flows.explain.why import Cause, Clears, joined

_TAKERS = {
    "pull": "no consumer has pulled it yet",
    "push": "it has not been pushed yet",
    "bound": "the binder has not applied it yet",
}
_ENDS = {
    "acked": "handled it",
    "expired": "dropped it: it was older than the retention period",
    "purged": "dropped it: its backlog was purged",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFact:
    """The last generation of a message in a subscription; `state` as in `MessageState`."""

    message_id: int
    state: str
    attempts: int
    at: Micros
    holder: str | None = None
    last_error: str | None = None
    ordering_key: str | None = None
    head: DeliveryFact | None = None
    """The delivery of the same ordering key that must end first."""
    dead_letter_id: str | None = None
    """Open dead letter that the generation became."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFact:
    """An open alert about a subscription."""

    message: str
    since: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFact:
    """A subscription with its waiting deliveries. `customer` is None for a system subscription."""

    name: str
    customer: str | None
    kind: str
    topic: str
    is_topic_deleted: bool
    is_paused: bool
    filter: str | None
    created_at: Micros
    alerts: tuple[AlertFact, ...] = ()
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Ready, leased and delayed deliveries, and those behind their ordering key; bounded."""
    oldest_at: Micros | None = None
    waiting: tuple[DeliveryFact, ...] = ()
    """The oldest deliveries of each state."""
    dead_letters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFact:
    """A message, and each subscription of its topic with its delivery, if there is one."""

    message_id: int
    topic: str
    published_at: Micros
    deliveries: tuple[tuple[SubscriptionFact, DeliveryFact | None, bool], ...]
    """Subscription, delivery, and whether the subscription's filter matches the message."""


def why_message(message: MessageFact, local: LocalClock) -> Cause:
    """Return why the subscriptions of its topic have not handled a message."""
    name = f"message {message.message_id} on {message.topic}"
    children = [
        _of_subscription(message, sub, delivery, matches, local)
        for sub, delivery, matches in message.deliveries
    ]
    if not children:
        text = f"{message.topic} has no subscription"
        offer = suggestion(
            ["subscriptions", "create", "NAME", "--topic", message.topic],
            "create one",
            "subscriptions.declare",
            topic=message.topic,
        )
        children.append(Cause(kind="topic", text=text, clears=Clears.PERSON, offer=offer))
    pending = any(child.clears is not Clears.NEVER for child in children)
    end = "" if pending else ": nothing is pending"
    return joined(
        Cause(
            kind="message",
            text=f"{name} was published at {local.at(message.published_at)}{end}",
            clears=Clears.NEVER,
            since=message.published_at,
            children=tuple(children),
        )
    )


def why_subscription(sub: SubscriptionFact, local: LocalClock) -> Cause:
    """Return why messages of a subscription are not handled."""
    ready, leased, delayed, behind = sub.counts
    children = list(_standstill(sub))
    if sub.is_topic_deleted:
        text = "its topic was deleted: no new messages arrive"
        children.append(Cause(kind="topic", text=text, clears=Clears.NEVER))
    children += [_delivery(sub, one, local, named=True) for one in sub.waiting]
    if sub.dead_letters:
        verb = "is a dead letter" if sub.dead_letters == 1 else "are dead letters"
        text = f"{sub.dead_letters:,} of its messages {verb}"
        offer = suggestion(
            ["dlq", "list", "--subscription", sub.name],
            "list them",
            "dead_letters.list",
            subscription=sub.name,
        )
        children.append(Cause(kind="dead_letter", text=text, clears=Clears.PERSON, offer=offer))
    text = f"{sub.name} ({sub.kind}, topic {sub.topic}) has no waiting messages"
    if sub.oldest_at is not None:
        text = (
            f"{sub.name} ({sub.kind}, topic {sub.topic}): {ready:,} ready, {leased:,} leased, "
            f"{delayed:,} delayed, {behind:,} behind their ordering key, "
            f"the oldest published at {local.at(sub.oldest_at)}"
        )
    return joined(
        Cause(
            kind="subscription",
            text=text,
            clears=Clears.NEVER,
            since=sub.oldest_at,
            children=tuple(children),
        )
    )


def _of_subscription(
    message: MessageFact,
    sub: SubscriptionFact,
    delivery: DeliveryFact | None,
    matches: bool,
    local: LocalClock,
) -> Cause:
    if delivery is not None:
        return _delivery(sub, delivery, local)
    if not matches:
        text = f"{sub.name} did not receive it: its attributes do not match the filter {sub.filter}"
        return Cause(kind="filter", text=text, clears=Clears.NEVER)
    if sub.created_at > message.published_at:
        text = f"{sub.name} did not receive it: it was created later, at {local.at(sub.created_at)}"
        return Cause(kind="subscription", text=text, clears=Clears.NEVER, since=sub.created_at)
    text = f"{sub.name} has no record of it: retention has deleted the record"
    return Cause(kind="subscription", text=text, clears=Clears.NEVER)


def _delivery(
    sub: SubscriptionFact, delivery: DeliveryFact, local: LocalClock, *, named: bool = False
) -> Cause:
    """Return the state of a delivery; `named`: refer to it by its message, not its subscription."""
    who = f"message {delivery.message_id}" if named else sub.name
    tried = f"after {format_times(delivery.attempts)}" if delivery.attempts else "never tried"
    error = f": {delivery.last_error}" if delivery.last_error else ""
    standstill = () if named else tuple(_standstill(sub))
    if delivery.state in _ENDS:
        text = f"{sub.name} {_ENDS[delivery.state]} at {local.at(delivery.at)}"
        return Cause(kind="delivery", text=text, clears=Clears.NEVER, since=delivery.at)
    if delivery.state == "dead_lettered":
        return _dead(sub, delivery, local)
    if delivery.state == "leased":
        holder = delivery.holder or "a consumer"
        text = f"{who}: {holder} holds it and must ack it by {local.at(delivery.at)}"
        return Cause(kind="lease", text=text, until_at=delivery.at)
    if delivery.state == "delayed":
        text = f"{who}: attempt {delivery.attempts + 1} is due {local.upcoming(delivery.at)}{error}"
        return joined(
            Cause(
                kind="backoff",
                text=text,
                clears=Clears.TIME,
                earliest_at=delivery.at,
                children=standstill,
            ),
        )
    if delivery.state == "behind":
        head = delivery.head
        key = f"ordering key {delivery.ordering_key}"
        ahead = "an earlier message" if head is None else f"message {head.message_id}"
        children = () if head is None else (_delivery(sub, head, local, named=True),)
        text = f"{who}: waits behind {ahead} ({key})"
        return joined(Cause(kind="ordering_key", text=text, children=(*standstill, *children)))
    text = f"{who}: ready, {tried}{error}"
    taker = Cause(kind="consumer", text=_TAKERS[sub.kind])
    return joined(Cause(kind="delivery", text=text, children=standstill or (taker,)))


def _dead(sub: SubscriptionFact, delivery: DeliveryFact, local: LocalClock) -> Cause:
    text = f"{sub.name} dead-lettered it at {local.at(delivery.at)} ({delivery.attempts} attempts)"
    if delivery.dead_letter_id is None:
        text += "; its dead letter is no longer open"
        return Cause(kind="dead_letter", text=text, clears=Clears.NEVER, since=delivery.at)
    error = f": {delivery.last_error}" if delivery.last_error else ""
    offer = suggestion(
        ["dlq", "replay", delivery.dead_letter_id],
        "deliver it again",
        "dead_letters.replay",
        dead_letter_id=delivery.dead_letter_id,
    )
    return Cause(
        kind="dead_letter",
        text=f"{text}{error}",
        clears=Clears.PERSON,
        since=delivery.at,
        offer=offer,
    )


def _standstill(sub: SubscriptionFact) -> Iterator[Cause]:
    """Yield causes that block all messages of a subscription."""
    if sub.is_paused:
        offer = suggestion(
            ["subscriptions", "resume", sub.name, *_owner(sub)],
            "deliver messages again",
            "subscriptions.pause",
            name=sub.name,
            customer_id=sub.customer,
            is_paused=False,
        )
        yield Cause(kind="pause", text=f"{sub.name} is paused", clears=Clears.PERSON, offer=offer)
    for alert in sub.alerts:
        yield Cause(kind="alert", text=alert.message, clears=Clears.PERSON, since=alert.since)


def _owner(sub: SubscriptionFact) -> Sequence[str]:
    return [] if sub.customer is None else ["--customer", sub.customer]
