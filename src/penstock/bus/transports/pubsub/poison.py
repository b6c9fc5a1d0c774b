"""Poison messages on Pub/Sub: copied to the dead-letter topic, because a nack carries no reason.

The copy has the message's content and attributes, and the reason for the failure. It is published
before the message is acked: a crash in between repeats it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.bus.message import Delivery, ErrorKind, Nack, SubscriptionSpec
from penstock.bus.redelivery import ERROR_MAX

HELD_MAX: Final = 10_000
VALUE_MAX: Final = 1_000
SOURCE: Final = "dead_letter_subscription"
ATTEMPTS: Final = "dead_letter_attempts"
ORIGIN: Final = "dead_letter_message_id"
ERROR_TYPE: Final = "dead_letter_error_type"
ERROR: Final = "dead_letter_error"


class PoisonCopies:
    """Copies poison messages; keeps delivered messages in memory until they are settled."""

    def __init__(
        self, publish: Callable[[str, Sequence[tuple[Any, Any, str | None]]], list[str]]
    ) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Delivery] = OrderedDict()

    def remember(self, raw: str, delivery: Delivery) -> None:
        """Keep a delivery of a subscription with dead letters."""
        if not delivery.has_dead_letters:
            return
        with self._lock:
            self._held[raw] = delivery
            while len(self._held) > HELD_MAX:
                self._held.popitem(last=False)

    def forget(self, raws: Iterable[str]) -> None:
        """Drop deliveries that were settled."""
        with self._lock:
            for raw in raws:
                self._held.pop(raw, None)

    def takes(self, facts: SubscriptionSpec, raw: str, nack: Nack) -> bool:
        """Return whether a nack makes its message a dead letter immediately.

        A message that another process received cannot be copied here: it is retried.
        """
        if nack.kind is not ErrorKind.POISON or facts.dead_letter_topic is None:
            return False
        with self._lock:
            return raw in self._held

    def copy(self, facts: SubscriptionSpec, nacks: Sequence[tuple[str, Nack]]) -> None:
        """Publish copies of poison messages."""
        bodies = []
        for raw, nack in nacks:
            with self._lock:
                held = self._held.get(raw)
            if held is not None:
                bodies.append((held.data, _attributes(held, nack), held.ordering_key))
        if bodies and facts.dead_letter_topic is not None:
            self._publish(facts.dead_letter_topic, bodies)


def _attributes(held: Delivery, nack: Nack) -> dict[str, str]:
    kept = {name: value for name, value in held.attributes.items() if not _is_reserved(name)}
    text = nack.error[:ERROR_MAX].encode()[:VALUE_MAX].decode(errors="ignore")
    return {
        **kept,
        SOURCE: held.subscription,
        ATTEMPTS: str(held.attempt),
        ORIGIN: held.message_id,
        ERROR_TYPE: nack.error_type or nack.kind.value.upper(),
        **({ERROR: text} if text else {}),
    }


def _is_reserved(name: str) -> bool:
    return name.lower().startswith(("cloudpubsub", "goog", "penstock-"))
