"""Topics and messages: publish, find a message again.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import cast

from penstock.remote.shapes.topics import (
    Done,
    MessageDetailOut,
    PublishIn,
    PublishOut,
    TopicDetailOut,
    TopicIn,
    TopicOut,
    TopicPage,
)
from penstock.remote.transport import Transport, quoted


class TopicsApi:
    """Topics and messages: publish, find a message again."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_topic(
        self, body: TopicIn, *, customer_id: str | None = None, idempotency_key: str | None = None
    ) -> TopicOut:
        """Make a topic; again is a no-op, another retention is applied.

        `POST /api/v1/topics`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/topics",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("TopicOut", told)

    def list_topics(
        self, *, customer_id: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> TopicPage:
        """Topics by name.

        `GET /api/v1/topics`

        customer_id: Whose it is; the house's own without.
        limit: Page size.
        cursor: The `next_cursor` of the page before.
        """
        told = self._transport.call(
            "GET",
            "/api/v1/topics",
            query={"customer_id": customer_id, "limit": limit, "cursor": cursor},
        )
        return cast("TopicPage", told)

    def get_topic(self, topic: str, *, customer_id: str | None = None) -> TopicDetailOut:
        """A topic with its subscriptions.

        `GET /api/v1/topics/{topic}`

        customer_id: Whose it is; the house's own without.
        """
        told = self._transport.call(
            "GET", f"/api/v1/topics/{quoted(topic)}", query={"customer_id": customer_id}
        )
        return cast("TopicDetailOut", told)

    def delete_topic(self, topic: str, *, customer_id: str | None = None) -> Done:
        """Delete a topic; its subscriptions keep what they were given and get nothing more.

        `DELETE /api/v1/topics/{topic}`

        customer_id: Whose it is; the house's own without.
        """
        told = self._transport.call(
            "DELETE", f"/api/v1/topics/{quoted(topic)}", query={"customer_id": customer_id}
        )
        return cast("Done", told)

    def publish(
        self,
        topic: str,
        body: PublishIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> PublishOut:
        """Publish messages, all or none; they are durable when this answers.

        `POST /api/v1/topics/{topic}/publish`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/topics/{quoted(topic)}/publish",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("PublishOut", told)

    def get_message(self, message_id: str) -> MessageDetailOut:
        """A message, and where it is for each subscription that was given it.

        `GET /api/v1/messages/{message_id}`
        """
        told = self._transport.call("GET", f"/api/v1/messages/{quoted(message_id)}")
        return cast("MessageDetailOut", told)
