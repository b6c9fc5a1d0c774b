"""Shared helpers of the consumer tests: envelopes, requests, a bus that records calls."""

import asyncio
import base64
import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from penstock.bus.message import Delivery, Nack, SettleResult, SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.consumer.asgi import PushApp

TOPIC, SUB, DEAD_LETTERS = "events", "beats", "dead"


def envelope(
    data: bytes, attributes: Mapping[str, str] | None = None, *, id: str = "1", **more: Any
) -> bytes:
    """Return a push body in Google's format."""
    message = {
        "data": base64.b64encode(data).decode(),
        "messageId": id,
        "publishTime": "2025-11-17T00:00:00Z",
        "attributes": dict(attributes or {"k": "v"}),
    }
    subscription = f"projects/p/subscriptions/{SUB}"
    return json.dumps({"message": message, "subscription": subscription, **more}).encode()


class Response:
    """Response of the application."""

    def __init__(self, sent: Sequence[MutableMapping[str, Any]]) -> None:
        self.status: int = sent[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        self.body = b"".join(event.get("body", b"") for event in sent[1:])

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def request(
    app: PushApp,
    body: bytes = b"",
    *,
    method: str = "POST",
    path: str = "/pubsub/push",
    headers: Sequence[tuple[str, str]] = (),
    root: str = "",
) -> Response:
    """Send one request to an application, on a new event loop."""

    async def exchange() -> list[MutableMapping[str, Any]]:
        sent: list[MutableMapping[str, Any]] = []
        parts = [body[at : at + 1_000_000] for at in range(0, len(body), 1_000_000)] or [b""]

        async def receive() -> MutableMapping[str, Any]:
            if not parts:
                return {"type": "http.disconnect"}
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(event: MutableMapping[str, Any]) -> None:
            sent.append(event)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": root,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        }
        await app(scope, receive, send)
        return sent

    return Response(asyncio.run(exchange()))


class RecordingBus(EmbeddedBus):
    """The embedded bus, which also records its calls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.acks: list[str] = []
        self.nacks: list[Nack] = []
        self.extended: list[int] = []
        self.released: list[str] = []

    def ack(self, subscription: str, ack_ids: Sequence[str], **report: Any) -> list[SettleResult]:
        results = super().ack(subscription, ack_ids, **report)
        self.acks += ack_ids
        return results

    def nack(self, subscription: str, nacks: Sequence[Nack], **report: Any) -> list[SettleResult]:
        results = super().nack(subscription, nacks, **report)
        self.nacks += nacks
        return results

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        results = super().extend(subscription, ack_ids, seconds)
        self.extended.append(seconds)
        return results

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        results = super().release(subscription, ack_ids)
        self.released += ack_ids
        return results

    def declare_all(self, *, dead_letters: bool, is_ordered: bool = False) -> None:
        """Declare the tests' topic and subscription, with or without a dead-letter policy."""
        dlq = f"{SUB}.dlq"
        self.declare(
            [TopicSpec(name=TOPIC), TopicSpec(name=dlq)],
            [
                SubscriptionSpec(
                    name=SUB,
                    topic=TOPIC,
                    dead_letter_topic=dlq if dead_letters else None,
                    is_ordered=is_ordered,
                ),
                SubscriptionSpec(name=DEAD_LETTERS, topic=dlq),
            ],
        )

    def dead_letters(self) -> list[Delivery]:
        """Pull the messages in the dead-letter topic."""
        return self.pull(DEAD_LETTERS)
