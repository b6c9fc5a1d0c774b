"""Subscriptions from the caller's side: make them, look at them, and take messages from them.

What every transport can do (pull, ack, nack, extend) is the embedded bus's; here it is given a
customer. The rest is the store's own: pausing, seeking by time, purging, what waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.access.store.names import Names, check_limit
from penstock.bus import rules
from penstock.bus.binding import parse_binding
from penstock.bus.message import Delivery, Nack, Settling, SubscriptionSpec
from penstock.bus.message import TopicSpec as Topic
from penstock.bus.replay_policy import parse_auto_replay
from penstock.bus.store.backlog import Backlog, Sums, backlog, delivery_sums
from penstock.bus.store.bindings import customer_name
from penstock.bus.store.replay import Seek, delivery_purge, seek_begin, seek_step
from penstock.bus.store.topics import (
    HOUSE,
    Extras,
    Subscription,
    SubscriptionFilter,
    channel,
    is_builtin,
    subscription_declare,
    subscription_delete,
    subscription_find,
    subscription_get,
    subscription_list,
    subscription_pause,
    topic_declare,
    topic_find,
    topic_get,
)
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.core import json_profile
from penstock.core.errors import InvalidInput, NotFound, StaleVersion
from penstock.db.store import Store, Tx
from penstock.egress.policy import ANYWHERE

__all__ = ["Extras", "SubscriptionDetail", "Subscriptions"]

STEP = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDetail:
    """A subscription, what waits in it, and what became of what it was given."""

    subscription: Subscription
    backlog: Backlog
    sums: Sums


class Subscriptions:
    """Use cases about subscriptions and their deliveries."""

    def __init__(self, store: Store, names: Names, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def declare(
        self,
        spec: SubscriptionSpec,
        extras: Extras | None = None,
        *,
        customer: str | None = None,
        version: int | None = None,
        actor: str | None = None,
    ) -> Subscription:
        """Make a subscription, or change it; its dead-letter topic is made when it is missing.

        `version` is the one the caller saw: another one by now is refused.
        """
        who = actor or self._actor
        rules.check_subscription(spec)
        extras = _checked(extras or Extras())

        def body(tx: Tx) -> Subscription:
            number = self._whose(tx, customer)
            if version is not None:
                seen = subscription_find(tx, spec.name, number)
                if seen is None or seen.version != version:
                    raise StaleVersion(
                        "subscription", spec.name, version, 0 if seen is None else seen.version
                    )
            topic_get(tx, spec.topic, number)
            if spec.dead_letter_topic is not None:
                dead = Topic(name=spec.dead_letter_topic, retention_us=spec.retention_us)
                topic_declare(tx, dead, number, who)
            return subscription_declare(tx, spec, number, who, extras)

        return self._store.write(body)

    def page(
        self,
        *,
        customer: str | None = None,
        topic: str | None = None,
        kind: str | None = None,
        after: str = "",
        limit: int = 50,
    ) -> list[Subscription]:
        """Subscriptions by name."""
        check_limit(limit)

        def body(tx: Tx) -> list[Subscription]:
            number = self._whose(tx, customer)
            of = None
            if topic is not None:
                found = topic_find(tx, topic, number)
                if found is None:
                    if number == HOUSE and is_builtin(tx, topic):
                        return []  # nobody has subscribed to it yet
                    raise NotFound("topic", topic)
                of = found.topic
            wanted = SubscriptionFilter(
                customer=number, topic=of, kind=kind, after=after, limit=limit
            )
            return subscription_list(tx, wanted)

        return self._store.read(body)

    def get(self, name: str, *, customer: str | None = None) -> SubscriptionDetail:
        """A subscription, what waits in it, and its sums of the last day."""

        def body(tx: Tx) -> SubscriptionDetail:
            sub = subscription_get(tx, name, self._whose(tx, customer))
            return SubscriptionDetail(
                subscription=sub,
                backlog=backlog(tx, sub.subscription),
                sums=delivery_sums(tx, sub.subscription),
            )

        return self._store.read(body)

    def watch(self, limit: int = 200) -> list[tuple[str, Backlog]]:
        """What waits in everybody's subscriptions, by name; a customer's as customer/name."""
        self._names.refuse_bound("everybody's subscriptions")

        def body(tx: Tx) -> list[tuple[str, Backlog]]:
            return [
                (self._label(tx, sub), backlog(tx, sub.subscription))
                for sub in subscription_list(tx, SubscriptionFilter(limit=limit))
            ]

        return self._store.read(body)

    def delete(self, name: str, *, customer: str | None = None, actor: str | None = None) -> None:
        """Delete a subscription; what waits in it is purged."""
        who = actor or self._actor
        self._store.write(lambda tx: subscription_delete(tx, name, self._whose(tx, customer), who))

    def pause(
        self, name: str, is_paused: bool, *, customer: str | None = None, actor: str | None = None
    ) -> Subscription:
        """Stop handing over, or go on; what is out may still be acked."""
        who = actor or self._actor
        return self._store.write(
            lambda tx: subscription_pause(
                tx, name, self._whose(tx, customer), is_paused=is_paused, actor=who
            )
        )

    def seek(
        self, name: str, to: int, *, customer: str | None = None, actor: str | None = None
    ) -> Seek:
        """Go to a time: what was published since comes again, what is older is purged."""
        who = actor or self._actor
        sub, seek = self._store.write(lambda tx: self._begin(tx, name, to, customer, who))
        while not seek.is_done:
            seek = self._store.write(lambda tx, at=seek: seek_step(tx, sub, at, STEP))  # type: ignore[misc]
        return seek

    def purge(self, name: str, *, customer: str | None = None, actor: str | None = None) -> int:
        """Drop everything that waits by now; returns how much."""
        who = actor or self._actor
        before = self._store.read(lambda tx: tx.now()) + 1

        def step(tx: Tx) -> int:
            sub = subscription_get(tx, name, self._whose(tx, customer))
            return delivery_purge(tx, sub, before=before, n=STEP, actor=who)

        total = 0
        while count := self._store.write(step):
            total += count
        return total

    # -- deliveries ----------------------------------------------------------------------------

    def pull(
        self,
        name: str,
        *,
        max_messages: int = 100,
        wait_seconds: float = 0.0,
        customer: str | None = None,
    ) -> list[Delivery]:
        """Take messages under lease; each must be acked, nacked or extended before its deadline."""
        bus = self._bus(customer)
        return bus.pull(name, max_messages=max_messages, wait_seconds=wait_seconds)

    def ack(
        self, name: str, ack_ids: Sequence[str], *, customer: str | None = None
    ) -> list[Settling]:
        """Settle deliveries; a stale ack id changes nothing and is told so."""
        return self._bus(customer).ack(name, ack_ids)

    def nack(
        self, name: str, nacks: Sequence[Nack], *, customer: str | None = None
    ) -> list[Settling]:
        """Give deliveries back, each with its reason."""
        return self._bus(customer).nack(name, nacks)

    def extend(
        self, name: str, ack_ids: Sequence[str], seconds: int, *, customer: str | None = None
    ) -> list[Settling]:
        """Move deadlines to `seconds` from now; 0 gives messages back."""
        return self._bus(customer).extend(name, ack_ids, seconds)

    def release(
        self, name: str, ack_ids: Sequence[str], *, customer: str | None = None
    ) -> list[Settling]:
        """Give back what was not tried: ready at once, and no attempt is counted."""
        return self._bus(customer).release(name, ack_ids)

    def channel(self, name: str, *, customer: str | None = None) -> str:
        """The channel on which it is hinted that there may be something to pull."""

        def body(tx: Tx) -> str:
            return channel(subscription_get(tx, name, self._whose(tx, customer)).subscription)

        return self._store.read(body)

    def _bus(self, customer: str | None) -> EmbeddedBus:
        number = HOUSE
        if customer is not None or self._names.customer_id is not None:
            number = self._store.read(lambda tx: self._whose(tx, customer))
        # This client's store is confined already, or is for somebody who sees everybody.
        return EmbeddedBus(self._store, customer=number, is_confined=True, actor=self._actor)

    def _begin(
        self, tx: Tx, name: str, to: int, customer: str | None, who: str
    ) -> tuple[Subscription, Seek]:
        sub = subscription_get(tx, name, self._whose(tx, customer))
        if to > tx.now():
            raise InvalidInput("time", "a time in the past", to)
        return sub, seek_begin(tx, sub, to, who)

    def _label(self, tx: Tx, sub: Subscription) -> str:
        if sub.customer == HOUSE:
            return sub.name
        return f"{customer_name(tx, sub.customer)}/{sub.name}"

    def _whose(self, tx: Tx, customer: str | None) -> int:
        number = self._names.customer(tx, customer)
        return HOUSE if number is None else number


def _checked(extras: Extras) -> Extras:
    """What a subscription has beyond the common, as its owners would write it."""
    said = {"push": extras.push, "binding": extras.binding}
    wanted = {"push": "push", "bound": "binding"}.get(extras.kind)
    for name, text in said.items():
        if (text is not None) != (name == wanted):
            expected = f"something for kind {extras.kind}" if name == wanted else "nothing"
            raise InvalidInput(name, f"{expected} (kind {extras.kind})", text)
    if extras.auto_replay is not None:
        # Where its URL may point is judged when it is asked, by that process's rules.
        wish = parse_auto_replay(json_profile.parse(extras.auto_replay.encode()), ANYWHERE)
        extras = replace(extras, auto_replay=wish.dump())
    if extras.binding is not None:
        binding = parse_binding(json_profile.parse(extras.binding.encode()))
        return replace(extras, binding=binding.dump())
    return extras
