"""Conversion of API request bodies for topics, messages and subscriptions to internal records.

The API and the command line share this mapping: errors name the field as the caller sent it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.bus.message import DEAD_LETTER_SUFFIX, ErrorKind, Nack, NewMessage, SubscriptionSpec
from penstock.bus.store.topics import SubscriptionOptions
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput

DAY_SECONDS: Final = 86_400


def bytes_of(text: str, field: str) -> bytes:
    """Decode base64 text; raise InvalidInput for `field` if it is not valid."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one
        raise InvalidInput(field, "base64", text) from None


def outgoing_of(messages: Sequence[Mapping[str, Any]]) -> list[NewMessage]:
    """Convert messages to publish; `data` is base64."""
    made = []
    for index, one in enumerate(messages):
        made.append(
            NewMessage(
                data=bytes_of(one.get("data") or "", f"messages[{index}].data"),
                attributes=one.get("attributes") or {},
                ordering_key=one.get("ordering_key"),
                dedupe_id=one.get("dedupe_id"),
            )
        )
    return made


def subscription_of(body: Mapping[str, Any]) -> tuple[SubscriptionSpec, SubscriptionOptions]:
    """Convert a subscription; it gets a dead-letter topic unless `dead_letters` is false."""
    dead = body.get("dead_letter_topic")
    if body.get("dead_letters", True):
        dead = dead or body["name"] + DEAD_LETTER_SUFFIX
    elif dead is not None:
        raise InvalidInput("dead_letter_topic", "no topic when dead_letters is false", dead)
    spec = SubscriptionSpec(
        name=body["name"],
        topic=body["topic"],
        ack_deadline_us=int(body.get("ack_deadline_seconds", 60) * SECOND),
        min_backoff_us=int(body.get("min_backoff_seconds", 10) * SECOND),
        max_backoff_us=int(body.get("max_backoff_seconds", 600) * SECOND),
        max_attempts=body.get("max_delivery_attempts", 5),
        dead_letter_topic=dead,
        retention_us=int(body.get("retention_seconds", 7 * DAY_SECONDS) * SECOND),
        is_ordered=body.get("enable_message_ordering", False),
        filter=body.get("filter"),
    )
    extras = SubscriptionOptions(
        kind=body.get("kind", "pull"),
        push=_text(body.get("push")),
        binding=_text(body.get("binding")),
        auto_replay=_text(body.get("auto_replay")),
        replays_max=body.get("replays_max", 3),
    )
    return spec, extras


def nacks_of(nacks: Sequence[Mapping[str, Any]]) -> list[Nack]:
    """Convert nacks: deliveries returned to the queue, each with its reason."""
    return [
        Nack(
            ack_id=one["ack_id"],
            kind=ErrorKind(one.get("kind", "transient")),
            error_type=one.get("error_type", ""),
            error=one.get("error", ""),
            delay_us=None
            if one.get("delay_seconds") is None
            else int(one["delay_seconds"] * SECOND),
        )
        for one in nacks
    ]


def _text(given: object) -> str | None:
    """Encode an object as the canonical JSON text that the store keeps."""
    if given is None:
        return None
    return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
