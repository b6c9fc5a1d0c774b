"""Validation of topics, subscriptions and published messages: names, sizes, attributes, durations.

Pure checks with the limits of Google Pub/Sub; an error names the field and what was expected. The
attributes that Google and Penstock set on dead letters are reserved and rejected on publish, so
that a publisher cannot forge the origin of a message.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.bus.message import (
    Handled,
    Nack,
    NewMessage,
    ServiceRevision,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.core.filters import attributes as filters

MESSAGE_BYTES_MAX: Final = 10_000_000
BATCH_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 10_000_000
ATTRIBUTES_MAX: Final = 100
ATTRIBUTE_KEY_BYTES_MAX: Final = 256
ATTRIBUTE_VALUE_BYTES_MAX: Final = 1024
ORDERING_KEY_BYTES_MAX: Final = 1024
DEDUPE_ID_BYTES_MAX: Final = 255
RETENTION_MIN: Final = 10 * MINUTE
RETENTION_MAX: Final = 31 * DAY
EXTENSION_MAX_S: Final = 600
REPLAYS_MAX: Final = 100
HANDLED_MAX_US: Final = 7 * DAY
REPORTER_MAX: Final = 200
"""Maximum bytes of the service and of the revision that a consumer reports."""
LABELS_MAX: Final = 64
LABEL_BYTES_MAX: Final = 128

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.~+%-]{2,254}", re.ASCII)
_NAME_RULE = "3 to 255 letters, digits, '-', '_', '.', '~', '+' or '%', a letter first"
_RESERVED = ("cloudpubsub", "goog", "penstock-")
_TRACE = frozenset({"googclient_traceparent", "googclient_tracestate"})
"""Attributes in which Google's clients propagate a trace."""


def check_name(name: object, field: str) -> str:
    """Validate the name of a topic or subscription and return it."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInput(field, _NAME_RULE, name)
    if name.lower().startswith("goog"):
        raise InvalidInput(field, 'a name that does not begin with "goog"', name)
    return name


def check_text(value: object, field: str, most: int, *, least: int = 0) -> str:
    """Validate text of `least` to `most` bytes that both database engines can store; return it."""
    if not isinstance(value, str):
        raise InvalidInput(field, "text", value)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(field, "text without lone surrogates", "a lone surrogate") from None
    if not least <= size <= most:
        raise InvalidInput(field, f"{least} to {most} bytes", f"{size} bytes")
    if "\x00" in value:
        raise InvalidInput(field, "text without NUL characters", value)
    return value


def check_attributes(attributes: Mapping[str, str], field: str = "attributes") -> None:
    """Validate attributes: at most 100, text to text, no reserved names."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise InvalidInput(field, f"at most {ATTRIBUTES_MAX} attributes", len(attributes))
    for key, value in attributes.items():
        check_text(key, f"{field} key", ATTRIBUTE_KEY_BYTES_MAX, least=1)
        if key.lower().startswith(_RESERVED) and key not in _TRACE:
            raise InvalidInput(
                f"{field}.{key}", "a name that is not reserved", key,
                "Only the bus sets names that begin with CloudPubSub, goog or penstock-.",
            )  # fmt: skip
        check_text(value, f"{field}.{key}", ATTRIBUTE_VALUE_BYTES_MAX)


def check_outgoing(message: NewMessage, field: str = "message") -> None:
    """Validate a message to publish."""
    if not isinstance(message.data, bytes):
        raise InvalidInput(f"{field}.data", "bytes", type(message.data).__name__)
    if len(message.data) > MESSAGE_BYTES_MAX:
        raise InvalidInput(
            f"{field}.data", f"at most {MESSAGE_BYTES_MAX} bytes", f"{len(message.data)} bytes"
        )
    if not message.data and not message.attributes:
        raise InvalidInput(field, "data or at least one attribute", "neither")
    if message.attributes:
        check_attributes(message.attributes, f"{field}.attributes")
    if message.ordering_key is not None:
        check_text(message.ordering_key, f"{field}.ordering_key", ORDERING_KEY_BYTES_MAX)
    if message.dedupe_id is not None:
        check_text(message.dedupe_id, f"{field}.dedupe_id", DEDUPE_ID_BYTES_MAX, least=1)


def check_batch(messages: list[NewMessage]) -> None:
    """Validate a batch of messages to publish in one transaction."""
    if not messages:
        raise InvalidInput("messages", "at least one message", "none")
    if len(messages) > BATCH_MAX:
        raise InvalidInput("messages", f"at most {BATCH_MAX} messages per batch", len(messages))
    for index, message in enumerate(messages):
        check_outgoing(message, f"messages[{index}]")
    size = sum(len(message.data) for message in messages)
    if size > BATCH_BYTES_MAX:
        expected = f"at most {BATCH_BYTES_MAX} bytes per batch"
        raise InvalidInput("messages", expected, f"{size} bytes")


def labels_text(labels: Mapping[str, str], field: str = "labels") -> str:
    """Validate labels and return them as stored: canonical JSON."""
    if len(labels) > LABELS_MAX:
        raise InvalidInput(field, f"at most {LABELS_MAX} labels", len(labels))
    for key, value in labels.items():
        check_text(key, f"{field} key", LABEL_BYTES_MAX, least=1)
        check_text(value, f"{field}.{key}", LABEL_BYTES_MAX)
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def body_hash(message: NewMessage) -> str:
    """Return the hash by which two messages with the same dedupe id are compared."""
    digest = hashlib.sha256()
    parts = [message.data, (message.ordering_key or "").encode()]
    for key, value in sorted(message.attributes.items()):
        parts += [key.encode(), value.encode()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def check_topic(spec: TopicSpec) -> None:
    """Validate the declaration of a topic."""
    check_name(spec.name, "topic")
    _between(spec.retention_us, RETENTION_MIN, RETENTION_MAX, "retention")


def check_subscription(spec: SubscriptionSpec) -> None:
    """Validate the declaration of a subscription."""
    check_name(spec.name, "subscription")
    check_name(spec.topic, "topic")
    if spec.dead_letter_topic is not None:
        check_name(spec.dead_letter_topic, "dead_letter_topic")
        if spec.dead_letter_topic == spec.topic:
            raise InvalidInput(
                "dead_letter_topic", "a topic other than the subscription's own",
                spec.dead_letter_topic,
            )  # fmt: skip
    _between(spec.ack_deadline_us, 10 * SECOND, 600 * SECOND, "ack_deadline")
    _between(spec.min_backoff_us, 0, 600 * SECOND, "min_backoff")
    _between(spec.max_backoff_us, spec.min_backoff_us, 600 * SECOND, "max_backoff")
    _between(spec.retention_us, RETENTION_MIN, RETENTION_MAX, "retention")
    attempts: object = spec.max_attempts
    if isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= 100:
        raise InvalidInput("max_attempts", "a whole number from 1 to 100", attempts)
    if spec.filter is not None:
        filters.parse(spec.filter)


def check_nack(nack: Nack) -> None:
    """Validate the reason and the delay of a nack."""
    check_text(nack.error_type, "error_type", 200)
    check_text(nack.error, "error", MESSAGE_BYTES_MAX)
    delay = nack.delay_us
    if delay is not None and delay < 0:
        raise InvalidInput("delay", "a duration of at least 0", delay)
    if nack.handled is not None:
        check_handled([nack.handled])


def check_handled(handled: Sequence[Handled]) -> None:
    """Validate the durations that a consumer reports."""
    for one in handled:
        duration = one.duration_us
        if duration is not None and not 0 <= duration <= HANDLED_MAX_US:
            raise InvalidInput("duration_seconds", "0 seconds to 7 days", str(one.duration))


def check_reporter(by: ServiceRevision | None) -> None:
    """Validate the service and the revision that a consumer reports."""
    if by is not None:
        check_text(by.service, "service", REPORTER_MAX, least=1)
        check_text(by.revision, "revision", REPORTER_MAX)


def check_extension(seconds: object) -> int:
    """Validate an ack deadline extension in seconds: 0 (return the message now) to 600."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int)
        or not 0 <= seconds <= EXTENSION_MAX_S
    ):
        raise InvalidInput("seconds", f"a whole number from 0 to {EXTENSION_MAX_S}", seconds)
    return seconds


def _between(value: object, least: int, most: int, field: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(
            field, f"{least / SECOND:g} to {most / SECOND:g} seconds",
            f"{value / SECOND:g} seconds" if isinstance(value, int) else value,
        )  # fmt: skip
