"""Declares, updates and reads the topics and subscriptions of the Pub/Sub transport."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from penstock.bus import rules
from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.capabilities import PUBSUB
from penstock.bus.transports.pubsub.connection import PubsubConnection
from penstock.core.clock import SECOND, Micros
from penstock.core.errors import InvalidInput, NotFound

_CHANGED: Final = (
    "ack_deadline_seconds", "message_retention_duration", "retry_policy", "dead_letter_policy",
    "enable_exactly_once_delivery", "labels",
)  # fmt: skip
ATTEMPTS_DEFAULT: Final = 5
_DEFAULT_RETENTION: Final = TopicSpec(name="default").retention_us


class Resources:
    """The topics and subscriptions of a project."""

    def __init__(self, connection: PubsubConnection) -> None:
        self._connection = connection
        self._project = connection.options.project
        self._facts: dict[str, SubscriptionSpec] = {}

    def path(self, kind: str, name: str) -> str:
        """Return the full name of a resource."""
        return f"projects/{self._project}/{kind}/{name}"

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or change topics and subscriptions; everything is validated before any change."""
        declared = {topic.name for topic in topics}
        for topic in topics:
            rules.check_topic(topic)
        known: dict[str, SubscriptionSpec | None] = {}
        for spec in subscriptions:
            _check(spec)
            for name in (spec.topic, spec.dead_letter_topic):
                if name is not None and name not in declared and self.read_topic(name) is None:
                    raise NotFound("topic", name)
            known[spec.name] = self.read_subscription(spec.name)
            _check_immutable(known[spec.name], spec)
        for topic in topics:
            self._declare_topic(topic)
        for spec in subscriptions:
            self._declare_subscription(spec, known[spec.name])

    def read_topic(self, name: str) -> TopicSpec | None:
        """Return a topic as the service has it; None if there is none."""
        from google.pubsub_v1 import types  # an optional dependency

        path = self.path("topics", name)
        try:
            found = self._connection.call(
                self._connection.publisher().get_topic, types.GetTopicRequest(topic=path), path
            )
        except NotFound:
            return None
        retention = _micros(found.message_retention_duration) or _DEFAULT_RETENTION
        schema = None
        if found.schema_settings.schema:
            schema = json.dumps(
                {"encoding": "binary" if found.schema_settings.encoding == 2 else "json",
                 "schema": found.schema_settings.schema.split("/")[-1]},
                sort_keys=True, separators=(",", ":"),
            )  # fmt: skip
        return TopicSpec(
            name=name, retention_us=retention, labels=dict(found.labels), schema_settings=schema
        )

    def read_subscription(self, name: str) -> SubscriptionSpec | None:
        """Return a subscription's policy as the service has it; None if there is none."""
        from google.pubsub_v1 import types  # an optional dependency

        path = self.path("subscriptions", name)
        try:
            found = self._connection.call(
                self._connection.subscriber().get_subscription,
                types.GetSubscriptionRequest(subscription=path),
                path,
            )
        except NotFound:
            return None
        spec = _spec_of(found)
        self._facts[name] = spec
        return spec

    def facts(self, name: str) -> SubscriptionSpec:
        """Return a subscription's policy, read once; raise NotFound if there is none."""
        found = self._facts.get(name) or self.read_subscription(name)
        if found is None:
            raise NotFound("subscription", name)
        return found

    def _declare_topic(self, spec: TopicSpec) -> None:
        from google.pubsub_v1 import types  # an optional dependency

        found = self.read_topic(spec.name)
        if found == spec:
            return
        path = self.path("topics", spec.name)
        wanted = types.Topic(name=path, labels=dict(spec.labels))
        masks = ["labels"]
        if spec.retention_us != _DEFAULT_RETENTION or found is not None:
            wanted.message_retention_duration = _timedelta(spec.retention_us)
            masks.append("message_retention_duration")
        if spec.schema_settings is not None:
            given = json.loads(spec.schema_settings)
            wanted.schema_settings = types.SchemaSettings(
                schema=self.path("schemas", given["schema"]),
                encoding=2 if given.get("encoding") == "binary" else 1,
            )
            masks.append("schema_settings")
        publisher = self._connection.publisher()
        if found is None:
            self._connection.call(publisher.create_topic, wanted, path)
        else:
            request = types.UpdateTopicRequest(topic=wanted, update_mask={"paths": masks})
            self._connection.call(publisher.update_topic, request, path)

    def _declare_subscription(self, spec: SubscriptionSpec, found: SubscriptionSpec | None) -> None:
        from google.pubsub_v1 import types  # an optional dependency

        if found == spec:
            return
        path = self.path("subscriptions", spec.name)
        wanted = self._subscription(spec)
        subscriber = self._connection.subscriber()
        if found is None:
            self._connection.call(subscriber.create_subscription, wanted, path)
        else:
            request = types.UpdateSubscriptionRequest(
                subscription=wanted, update_mask={"paths": list(_CHANGED)}
            )
            self._connection.call(subscriber.update_subscription, request, path)
        self._facts.pop(spec.name, None)

    def _subscription(self, spec: SubscriptionSpec) -> Any:
        from google.pubsub_v1 import types  # an optional dependency

        made = types.Subscription(
            name=self.path("subscriptions", spec.name),
            topic=self.path("topics", spec.topic),
            ack_deadline_seconds=spec.ack_deadline_us // SECOND,
            message_retention_duration=_timedelta(spec.retention_us),
            enable_message_ordering=spec.is_ordered,
            filter=spec.filter or "",
            enable_exactly_once_delivery=spec.is_exactly_once,
            labels=dict(spec.labels),
            expiration_policy=types.ExpirationPolicy(),
        )
        if spec.max_backoff_us:
            made.retry_policy = types.RetryPolicy(
                minimum_backoff=_timedelta(spec.min_backoff_us),
                maximum_backoff=_timedelta(spec.max_backoff_us),
            )
        if spec.dead_letter_topic is not None:
            made.dead_letter_policy = types.DeadLetterPolicy(
                dead_letter_topic=self.path("topics", spec.dead_letter_topic),
                max_delivery_attempts=spec.max_attempts,
            )
        return made


def _spec_of(found: Any) -> SubscriptionSpec:
    has_retries = "retry_policy" in found
    policy = found.dead_letter_policy
    return SubscriptionSpec(
        name=found.name.split("/")[-1],
        topic=found.topic.split("/")[-1],
        ack_deadline_us=found.ack_deadline_seconds * SECOND,
        min_backoff_us=_micros(found.retry_policy.minimum_backoff) if has_retries else 0,
        max_backoff_us=_micros(found.retry_policy.maximum_backoff) if has_retries else 0,
        max_attempts=policy.max_delivery_attempts or ATTEMPTS_DEFAULT,
        dead_letter_topic=policy.dead_letter_topic.split("/")[-1] or None,
        retention_us=_micros(found.message_retention_duration),
        is_ordered=found.enable_message_ordering,
        filter=found.filter or None,
        is_exactly_once=found.enable_exactly_once_delivery,
        labels=dict(found.labels),
    )


def _check(spec: SubscriptionSpec) -> None:
    rules.check_subscription(spec)
    if spec.dead_letter_topic is not None and spec.max_attempts < PUBSUB.attempts_min:
        expected = f"at least {PUBSUB.attempts_min} on Pub/Sub"
        raise InvalidInput("max_attempts", expected, spec.max_attempts)


def _check_immutable(found: SubscriptionSpec | None, spec: SubscriptionSpec) -> None:
    if found is None:
        return
    for name in ("topic", "is_ordered", "filter"):
        before, wanted = getattr(found, name), getattr(spec, name)
        if before != wanted:
            fix = "Delete the subscription and create it again."
            raise InvalidInput(name, str(before), wanted, fix)


def _timedelta(micros: Micros) -> timedelta:
    return timedelta(microseconds=micros)


def _micros(span: timedelta | None) -> Micros:
    return 0 if span is None else span // timedelta(microseconds=1)
