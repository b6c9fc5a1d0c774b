"""Use cases that declare, change and end subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.bus import rules
from penstock.bus.binding import parse_binding
from penstock.bus.client.requests import subscription_of
from penstock.bus.from_rows import subscription_record
from penstock.bus.message import SubscriptionSpec
from penstock.bus.records import StoredSubscription, Subscription, SubscriptionSettings
from penstock.bus.replay_policy import parse_auto_replay
from penstock.bus.store.deliveries import deliveries_hasten
from penstock.bus.store.push_targets import push_email_own
from penstock.bus.store.replay import delivery_purge
from penstock.bus.store.topics import (
    SYSTEM,
    SubscriptionOptions,
    SubscriptionRow,
    channel,
    subscription_declare,
    subscription_delete,
    subscription_detach,
    subscription_find,
    subscription_get,
    subscription_pause,
    topic_ensure,
    topic_get,
)
from penstock.core import json_profile
from penstock.core.errors import AlreadyExists, InvalidInput, StaleVersion
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import Owner
from penstock.core.records.record import Meta
from penstock.db.store import Transactions, Tx
from penstock.egress.policy import PERMISSIVE

STEP = 500

SubscriptionName: TypeAlias = Annotated[
    str,
    Meta(description="Name of the subscription.", examples=["rosters-to-table"], max_length=255),
]
IsPaused: TypeAlias = Annotated[bool, Meta(description="True pauses delivery, false resumes it.")]
Change: TypeAlias = Callable[[Subscription], Subscription]


class SubscriptionDeclarations:
    """Use cases that declare, change and end subscriptions."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def declare(self, subscription: Subscription, *, customer: Owner = None) -> StoredSubscription:
        """Create a subscription, or replace its settings.

        Its dead-letter topic is created if it is missing.
        """
        spec, options = _checked(subscription)
        version = subscription.version

        def body(tx: Tx) -> StoredSubscription:
            number = self._customer_key(tx, customer)
            if version is not None:
                seen = subscription_find(tx, spec.name, number)
                if seen is None or seen.version != version:
                    raise StaleVersion(
                        "subscription", spec.name, version, 0 if seen is None else seen.version
                    )
            topic_get(tx, spec.topic, number)
            if spec.dead_letter_topic is not None:
                dead = spec.dead_letter_topic
                topic_ensure(tx, dead, spec.retention_us, number, self._actor)
            return subscription_record(self._put(tx, spec, options, number))

        return self._store.write(body)

    def add(self, subscription: Subscription, *, customer: Owner = None) -> StoredSubscription:
        """Create a subscription to existing topics. Raises AlreadyExists if its name is taken."""
        spec, options = _checked(subscription)

        def body(tx: Tx) -> StoredSubscription:
            number = self._customer_key(tx, customer)
            if subscription_find(tx, spec.name, number) is not None:
                raise AlreadyExists("subscription", spec.name)
            return subscription_record(self._put(tx, spec, options, number))

        return self._store.write(body)

    def change(
        self, name: SubscriptionName, change: Change, *, customer: Owner = None
    ) -> StoredSubscription:
        """Replace the settings of a subscription with the result of `change(current)`."""

        def body(tx: Tx) -> StoredSubscription:
            number = self._customer_key(tx, customer)
            found = subscription_record(subscription_get(tx, name, number))
            spec, options = _checked(change(settings_of(found)))
            return subscription_record(self._put(tx, spec, options, number))

        return self._store.write(body)

    def detach(self, name: SubscriptionName, *, customer: Owner = None) -> StoredSubscription:
        """Detach a subscription from its topic. Its unsettled deliveries are purged."""
        sub = self._store.write(
            lambda tx: subscription_detach(tx, name, self._customer_key(tx, customer), self._actor)
        )
        while self._store.write(lambda tx: delivery_purge(tx, sub, n=STEP)):
            pass
        return subscription_record(sub)

    def delete(self, name: SubscriptionName, *, customer: Owner = None) -> None:
        """Delete a subscription. Its unsettled deliveries are purged."""
        self._store.write(
            lambda tx: subscription_delete(tx, name, self._customer_key(tx, customer), self._actor)
        )

    def pause(
        self, name: SubscriptionName, is_paused: IsPaused, *, customer: Owner = None
    ) -> StoredSubscription:
        """Pause or resume delivery. Leased deliveries can still be settled.

        On resume, deliveries that wait after a failure become due immediately.
        """

        def body(tx: Tx) -> StoredSubscription:
            number = self._customer_key(tx, customer)
            found = subscription_pause(tx, name, number, is_paused=is_paused, actor=self._actor)
            if not is_paused and deliveries_hasten(tx, found.subscription_key):
                tx.after_commit(
                    lambda: self._store.wake([channel(found.subscription_key), "push", "bound"])
                )
            return subscription_record(found)

        return self._store.write(body)

    def _put(
        self, tx: Tx, spec: SubscriptionSpec, options: SubscriptionOptions, number: CustomerKey
    ) -> SubscriptionRow:
        if options.push is not None:
            is_bound = self._names.customer_id is not None
            push_email_own(tx, options.push, number, is_bound=is_bound)
        return subscription_declare(tx, spec, number, self._actor, options)

    def _customer_key(self, tx: Tx, customer: str | None) -> CustomerKey:
        number = self._names.customer_key(tx, customer)
        return SYSTEM if number is None else number


def settings_of(stored: StoredSubscription) -> Subscription:
    """Return the settings of a stored subscription in the form of a declaration."""
    given: dict[str, Any] = {
        name: getattr(stored, name) for name in SubscriptionSettings.__struct_fields__
    }
    return Subscription(**given, has_dead_letters=stored.dead_letter_topic is not None)


def _checked(subscription: Subscription) -> tuple[SubscriptionSpec, SubscriptionOptions]:
    """Convert a subscription; validate its options and return them in canonical form."""
    spec, options = subscription_of(subscription)
    rules.check_subscription(spec)
    given = {"push": options.push, "binding": options.binding}
    wanted = {"push": "push", "bound": "binding"}.get(options.kind)
    for name, text in given.items():
        if (text is not None) != (name == wanted):
            expected = "an object" if name == wanted else "no value"
            raise InvalidInput(name, f"{expected} for kind {options.kind}", text)
    if options.auto_replay is not None:
        # The process that requests the health URL checks it against its own egress rules.
        policy = parse_auto_replay(
            json_profile.parse_json(options.auto_replay.encode()), PERMISSIVE
        )
        options = replace(options, auto_replay=policy.to_json())
    if options.binding is not None:
        binding = parse_binding(json_profile.parse_json(options.binding.encode()))
        options = replace(options, binding=binding.to_json())
    return spec, options
