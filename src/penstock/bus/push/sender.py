"""Sending push requests over pinned connections, for the pusher."""

from __future__ import annotations

from penstock.bus.message import ERROR_KIND, ErrorKind
from penstock.bus.push.push_config import PushRequest, PushResponse, PushSender
from penstock.core.errors import InvalidInput
from penstock.egress.http_client import HttpClient, Request, RequestFailed


def push_sender(egress: HttpClient) -> PushSender:
    """Return a function that sends a POST request and returns its status, or why there was none."""

    def post(wanted: PushRequest) -> PushResponse:
        # A consumer treats a message that arrives twice as a duplicate, so reusing connections is
        # safe.
        request = Request(
            url=wanted.url,
            headers=wanted.headers,
            body=wanted.body,
            timeout_s=wanted.timeout_s,
            keep_alive=True,
            owner=wanted.owner,
        )
        try:
            reply = egress.send(request)
        except InvalidInput as error:
            return PushResponse(failure="refused", error=error.message)
        except RequestFailed as error:
            return PushResponse(failure=error.kind, error=error.message)
        if reply.headers.get(ERROR_KIND) == ErrorKind.CONFIGURATION:
            why = "its consumer reports a configuration error; see the consumer's log"
            return PushResponse(status=reply.status, failure="configuration", error=why)
        return PushResponse(status=reply.status, retry_after=reply.headers.get("retry-after"))

    return post
