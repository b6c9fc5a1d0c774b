"""Conversion of declared topics, subscriptions and nacks to the transport's own records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from penstock.bus.message import DEAD_LETTER_SUFFIX, Nack, SubscriptionSpec, TopicSpec
from penstock.bus.records import Subscription, Topic
from penstock.bus.store.topics import PLAIN_SETTINGS, SubscriptionOptions
from penstock.core.clock import SECOND, Micros
from penstock.core.errors import InvalidInput
from penstock.core.records.record import Record, to_json_value

DELAY_MAX_S = 600


def topic_of(topic: Topic) -> TopicSpec:
    """Convert the declaration of a topic."""
    return TopicSpec(
        name=topic.name,
        retention_us=_whole(topic.retention, "retention_seconds"),
        labels=topic.labels,
        schema_settings=_text(topic.schema_settings),
    )


def subscription_of(wanted: Subscription) -> tuple[SubscriptionSpec, SubscriptionOptions]:
    """Convert a subscription; it gets a dead-letter topic unless `has_dead_letters` is False."""
    dead = wanted.dead_letter_topic
    if wanted.has_dead_letters:
        dead = dead or wanted.name + DEAD_LETTER_SUFFIX
    elif dead is not None:
        raise InvalidInput("dead_letter_topic", "no topic when dead_letters is false", dead)
    spec = SubscriptionSpec(
        name=wanted.name,
        topic=wanted.topic,
        ack_deadline_us=_whole(wanted.ack_deadline, "ack_deadline_seconds"),
        min_backoff_us=_micros(wanted.min_backoff, "min_backoff_seconds"),
        max_backoff_us=_micros(wanted.max_backoff, "max_backoff_seconds"),
        max_attempts=wanted.max_attempts,
        dead_letter_topic=dead,
        retention_us=_whole(wanted.retention, "retention_seconds"),
        is_ordered=wanted.is_ordered,
        filter=wanted.filter,
        is_exactly_once=wanted.is_exactly_once,
        labels=wanted.labels,
    )
    options = SubscriptionOptions(
        kind=wanted.kind,
        push=_text(wanted.push),
        binding=_text(wanted.binding),
        auto_replay=_text(wanted.auto_replay),
        replays_max=wanted.replays_max,
        expires_after_us=_expiry(wanted.expires_after),
        plain={name: getattr(wanted, name) for name in PLAIN_SETTINGS},
    )
    return spec, options


def check_delays(nacks: Sequence[Nack]) -> None:
    """Raise InvalidInput for a delay of more than ten minutes."""
    for index, nack in enumerate(nacks):
        if nack.delay is not None and not 0 <= nack.delay.total_seconds() <= DELAY_MAX_S:
            expected = f"0 to {DELAY_MAX_S} seconds"
            raise InvalidInput(f"nacks.{index}.delay_seconds", expected, f"{nack.delay}")


def _micros(span: object, field: str) -> Micros:
    if not isinstance(span, timedelta):
        raise InvalidInput(field, "a timedelta", span)
    return span // timedelta(microseconds=1)


def _expiry(span: object) -> Micros | None:
    """Return the time after which an unused subscription may be deleted."""
    if span is None:
        return None
    found = _whole(span, "expiration_ttl_seconds")
    if found <= 0:
        raise InvalidInput("expiration_ttl_seconds", "more than 0", f"{found / SECOND:g} seconds")
    return found


def _whole(span: object, field: str) -> Micros:
    """Return a duration of whole seconds in microseconds."""
    found = _micros(span, field)
    if found % SECOND:
        raise InvalidInput(field, "whole seconds", f"{found / SECOND:g} seconds")
    return found


def _text(given: Record | None) -> str | None:
    """Encode settings as the canonical JSON text that the store keeps."""
    if given is None:
        return None
    shown = to_json_value(given)
    return json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
