"""Requests of push over pinned connections: what the pusher is given to send with."""

from __future__ import annotations

from penstock.bus.push.push_config import Answered, Post, Poster
from penstock.core.errors import InvalidInput
from penstock.egress.http_client import Egress, Failed, Request


def posting(egress: Egress) -> Poster:
    """How a post is sent: its status, or why there was none."""

    def post(wanted: Post) -> Answered:
        # A message that arrives twice is a duplicate to its receiver: a connection may be kept.
        request = Request(
            url=wanted.url,
            headers=wanted.headers,
            body=wanted.body,
            seconds=wanted.seconds,
            keeps=True,
        )
        try:
            reply = egress.send(request)
        except InvalidInput as error:
            return Answered(failure="refused", error=error.message)
        except Failed as error:
            return Answered(failure=error.kind, error=error.message)
        return Answered(status=reply.status, retry_after=reply.headers.get("retry-after"))

    return post
