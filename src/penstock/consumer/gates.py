"""A gate before a handler: Penstock checks whether the data that the handler needs is available.

    client = connect(...)                  # in process, or over HTTP
    app = Consumer(..., gate=product_gate(client.gates, "nba", "analytics", processor="summary"))

The handler finds the `GateResponse` in `message.gate`: whether it runs degraded, what is missing.
A message that waits for same-day data is acked, one with missing history is nacked up to three
times, and one that can never start is kept as poison. Push responses contain status, reason,
missing and retry_count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.consumer.failure import GateClosed, Reject
from penstock.consumer.message import Message
from penstock.flows.gates.acknowledge import GateResponse, gate_response
from penstock.flows.gates.records import GateCheck

PARTITION_NAMES = ("partition", "game_date")


class GateUseCases(Protocol):
    """The use cases of gates, in process or over HTTP: `client.gates`."""

    def check(
        self,
        pipeline: str,
        phase: str,
        *,
        processor: str | None = None,
        partition: str | None = None,
        mode: str | None = None,
        customer: str | None = None,
        retry_count: int = 0,
    ) -> GateCheck:
        """Evaluate a gate now."""
        ...


def product_gate(
    gates: GateUseCases,
    pipeline: str,
    phase: str,
    *,
    processor: str | None = None,
    mode: str | None = None,
    customer: str | None = None,
    partition: Callable[[Message], str] | None = None,
) -> Callable[[Message], GateResponse]:
    """Return a gate for `Consumer(gate=...)` or `Consumer.on(gate=...)`.

    partition: returns the partition of a message; by default its attribute or field `partition` (or
    `game_date`). mode: defaults to the message's `processing_mode`, else to the mode for the
    current time.
    """

    def gate(message: Message) -> GateResponse:
        retry_count = max(0, (message.attempt or 1) - 1)
        found = gates.check(
            pipeline,
            phase,
            processor=processor,
            partition=(partition or partition_of_message)(message),
            mode=mode or _named(message, ("processing_mode",)),
            customer=customer or _named(message, ("customer_id",)),
            retry_count=retry_count,
        )
        result = gate_response(found, retry_count=retry_count)
        if not result.runs:
            raise GateClosed(result)
        return result

    return gate


def partition_of_message(message: Message) -> str:
    """Return the partition that a message names; raise Reject if it names none."""
    found = _named(message, PARTITION_NAMES)
    if found is None:
        raise Reject("partition: expected an attribute or a field of the data, got neither")
    return found


def _named(message: Message, names: tuple[str, ...]) -> str | None:
    for name in names:
        if name in message.attributes:
            return message.attributes[name]
        value = message.json.get(name) if isinstance(message.json, dict) else None
        if isinstance(value, str):
            return value
    return None
