"""What callers say about topics, messages and subscriptions, in the API's words, made ours.

One mapping for the API and the command line: errors name the field as it is said.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.bus.message import DEAD_LETTER_SUFFIX, ErrorKind, Nack, Outgoing, SubscriptionSpec
from penstock.bus.store.topics import Extras
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput

DAY_SECONDS: Final = 86_400


def bytes_of(text: str, field: str) -> bytes:
    """The bytes behind a text in base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one
        raise InvalidInput(field, "base64", text) from None


def outgoing_of(messages: Sequence[Mapping[str, Any]]) -> list[Outgoing]:
    """Messages to publish; data is base64."""
    made = []
    for place, one in enumerate(messages):
        made.append(
            Outgoing(
                data=bytes_of(one.get("data") or "", f"messages[{place}].data"),
                attributes=one.get("attributes") or {},
                ordering_key=one.get("ordering_key"),
                dedupe_id=one.get("dedupe_id"),
            )
        )
    return made


def subscription_of(said: Mapping[str, Any]) -> tuple[SubscriptionSpec, Extras]:
    """A subscription as it is declared; with dead letters unless they are declined."""
    dead = said.get("dead_letter_topic")
    if said.get("dead_letters", True):
        dead = dead or said["name"] + DEAD_LETTER_SUFFIX
    elif dead is not None:
        raise InvalidInput("dead_letter_topic", "none without dead_letters", dead)
    spec = SubscriptionSpec(
        name=said["name"],
        topic=said["topic"],
        ack_deadline_us=int(said.get("ack_deadline_seconds", 60) * SECOND),
        min_backoff_us=int(said.get("min_backoff_seconds", 10) * SECOND),
        max_backoff_us=int(said.get("max_backoff_seconds", 600) * SECOND),
        max_attempts=said.get("max_delivery_attempts", 5),
        dead_letter_topic=dead,
        retention_us=int(said.get("retention_seconds", 7 * DAY_SECONDS) * SECOND),
        is_ordered=said.get("enable_message_ordering", False),
        filter=said.get("filter"),
    )
    extras = Extras(
        kind=said.get("kind", "pull"),
        push=_text(said.get("push")),
        binding=_text(said.get("binding")),
        auto_replay=_text(said.get("auto_replay")),
        replays_max=said.get("replays_max", 3),
    )
    return spec, extras


def nacks_of(nacks: Sequence[Mapping[str, Any]]) -> list[Nack]:
    """Deliveries that are given back, each with its reason."""
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
    """An object as the store keeps it."""
    if given is None:
        return None
    return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
