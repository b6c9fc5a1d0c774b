"""Guarantees of each transport beyond at-least-once delivery, one constant per transport.

These flags describe all differences between transports: the conformance suite reads them before it
relies on a guarantee, and `docs/reference/transports.md` is written from them. This module imports
no client library, so that the table exists without any extra.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from penstock.bus.rules import MESSAGE_BYTES_MAX


def _flag(meaning: str) -> Any:
    return field(metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportCapabilities:
    """Guarantees of a transport beyond at-least-once delivery."""

    name: str = _flag("Name of the transport, as in its URL.")
    extra: str = _flag("Optional extra to install; empty if none is needed.")
    exact_attempts: bool = _flag(
        "`attempt` counts every delivery and is stored before the delivery is returned."
    )
    exact_dead_letters: bool = _flag(
        "A message becomes one dead letter, after exactly its number of attempts."
    )
    stale_acks_refused: bool = _flag(
        "An ack id has no effect once its deadline has passed, in any process."
    )
    publish_dedupe: bool = _flag("Publishing a dedupe id again stores no second message.")
    atomic_publish: bool = _flag("A batch is published whole or not at all.")
    ordering_keys: bool = _flag("Messages of an ordering key are delivered in publish order.")
    independent_keys: bool = _flag(
        "Keys do not wait for each other, and a pull may return several messages of a key."
    )
    attribute_filters: bool = _flag("Subscriptions may have a filter over attributes.")
    seek_by_time: bool = _flag("A subscription can be set to an earlier or later time.")
    nack_with_error: bool = _flag("The reason for a nack is kept with the dead letter.")
    release_without_attempt: bool = _flag("Releasing a message does not count as an attempt.")
    records_handling: bool = _flag(
        "The execution log keeps the service, outcome and duration that a consumer reports."
    )
    one_transaction_with_store: bool = _flag(
        "A message and a change of Penstock's state can commit together."
    )
    attempts_min: int = _flag("Smallest number of attempts that a dead-letter policy may have.")
    attempts_without_dead_letters: bool = _flag(
        "A subscription without a dead-letter topic keeps its number of attempts."
    )
    message_bytes_max: int = _flag("Maximum bytes of a message's data; servers may allow less.")
    dedupe_seconds: int | None = _flag(
        "Seconds for which a dedupe id is remembered; if none, as long as the message is kept."
    )

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return the meaning of each flag by its name."""
        return {one.name: str(one.metadata["meaning"]) for one in fields(cls)}


EMBEDDED: Final = TransportCapabilities(
    name="embedded",
    extra="",
    exact_attempts=True,
    exact_dead_letters=True,
    stale_acks_refused=True,
    publish_dedupe=True,
    atomic_publish=True,
    ordering_keys=True,
    independent_keys=True,
    attribute_filters=True,
    seek_by_time=True,
    nack_with_error=True,
    release_without_attempt=True,
    records_handling=True,
    one_transaction_with_store=True,
    attempts_min=1,
    attempts_without_dead_letters=True,
    message_bytes_max=MESSAGE_BYTES_MAX,
    dedupe_seconds=None,
)
HTTP: Final = replace(EMBEDDED, name="http", one_transaction_with_store=False)
"""The embedded bus over the API."""
NATS: Final = TransportCapabilities(
    name="nats",
    extra="nats",
    exact_attempts=True,
    exact_dead_letters=True,
    stale_acks_refused=False,
    publish_dedupe=True,
    atomic_publish=False,
    ordering_keys=True,
    independent_keys=False,
    attribute_filters=True,
    seek_by_time=False,
    nack_with_error=True,
    release_without_attempt=False,
    records_handling=False,
    one_transaction_with_store=False,
    attempts_min=1,
    attempts_without_dead_letters=True,
    message_bytes_max=MESSAGE_BYTES_MAX,
    dedupe_seconds=120,
)
PUBSUB: Final = TransportCapabilities(
    name="pubsub",
    extra="pubsub",
    exact_attempts=False,
    exact_dead_letters=False,
    stale_acks_refused=False,
    publish_dedupe=False,
    atomic_publish=False,
    ordering_keys=True,
    independent_keys=True,
    attribute_filters=True,
    seek_by_time=True,
    nack_with_error=False,
    release_without_attempt=False,
    records_handling=False,
    one_transaction_with_store=False,
    attempts_min=5,
    attempts_without_dead_letters=False,
    message_bytes_max=MESSAGE_BYTES_MAX,
    dedupe_seconds=None,
)
TRANSPORTS: Final = (EMBEDDED, HTTP, NATS, PUBSUB)
"""Every transport, in the order of the table."""
