"""One request to an endpoint: built, signed and sent, and its response interpreted.

`Exchanger.exchange` never raises: any error is the failure of that run alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.access.secrets import Secrets
from penstock.bus.push import webhook
from penstock.bus.push.push_config import TokenSigner
from penstock.core.clock import SECOND, Clock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.retry import ErrorType
from penstock.egress.http_client import HttpResponse, Request, RequestFailed
from penstock.runs.external.client.holder import FailureReport
from penstock.worker.endpoints.reply import Reply, failure_of_request, reply_of
from penstock.worker.endpoints.request import (
    CallbackBase,
    OutgoingRun,
    request_body,
    request_headers,
)

KEYS_MAX: Final = 10_000
KEYS_SECONDS: Final = 10.0
"""How long signing keys are used without reading the secrets again."""

EndpointSender: TypeAlias = Callable[[Request], HttpResponse]
"""Function that sends a request; raises InvalidInput if the egress rules forbid it, RequestFailed
if there is no response.
"""


FakeReply: TypeAlias = Callable[[dict[str, Any]], tuple[int, Any]]
"""Fake endpoint: takes the body of a request, returns the status and the body of its response."""


def fake_response(respond: FakeReply, body: bytes) -> HttpResponse:
    """Return the response of a fake endpoint; bytes are sent unchanged, other values as JSON."""
    status, value = respond(json.loads(body))
    raw = (
        value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
    )
    return HttpResponse(status=status, headers={}, body=raw)


class Exchanged(NamedTuple):
    """A request that was sent, and its outcome."""

    run: OutgoingRun
    reply: Reply
    status: int | None = None
    """HTTP status of the response; None if there was none."""
    failure: str = ""
    """Short code of the failure if there was no response."""
    seconds: float = 0.0


class Exchanger:
    """Sends runs to their endpoints; safe to use from any thread."""

    def __init__(
        self,
        send: EndpointSender,
        *,
        bearer: TokenSigner,
        secrets: Secrets,
        clock: Clock,
        signs: bool = True,
        trace_share: float = 1.0,
    ) -> None:
        """`signs`: whether requests have signatures and tokens; a fake endpoint needs none.

        trace_share: the fraction of traces that are exported.
        """
        self._trace_share = trace_share
        self._send = send
        self._bearer = bearer
        self._secrets = secrets
        self._clock = clock
        self._signs = signs
        self._known_keys: dict[tuple[tuple[str, ...], str], tuple[float, list[bytes]]] = {}

    def exchange(self, run: OutgoingRun, base: CallbackBase) -> Exchanged:
        """Send a run and return the outcome."""
        began = self._clock.monotonic()
        made = self._exchange(run, base)
        return made._replace(seconds=self._clock.monotonic() - began)

    def _exchange(self, run: OutgoingRun, base: CallbackBase) -> Exchanged:
        try:
            response = self._send(self._request(run, base))
        except RequestFailed as error:
            failure = failure_of_request(error, reply_us=run.reply_us)
            return Exchanged(run, failure, failure=error.kind)
        except PenstockError as error:
            kind = "refused" if isinstance(error, InvalidInput) else "configuration"
            return Exchanged(run, failure_of_request(error, reply_us=run.reply_us), failure=kind)
        except Exception as error:  # a row that cannot be sent must not stop the others
            message = f"the request could not be sent: {type(error).__name__}"
            details = {"message": message}
            failure = FailureReport(error_type=ErrorType.UNKNOWN, error_details=details)
            return Exchanged(run, failure, failure="error")
        reply = reply_of(response, self._clock.now(), has_callback=bool(base.url))
        return Exchanged(run, reply, response.status)

    def _keys(self, names: tuple[str, ...], customer: str) -> list[bytes]:
        """Return the keys that sign a customer's requests, cached for KEYS_SECONDS."""
        now = self._clock.monotonic()
        known = self._known_keys.get((names, customer))
        if known is not None and now < known[0]:
            return known[1]
        keys = [
            webhook.parse_secret(self._secrets.get(name, customer), f"secret {name}")
            for name in names
        ]
        if len(self._known_keys) >= KEYS_MAX:
            self._known_keys.clear()
        self._known_keys[names, customer] = (now + KEYS_SECONDS, keys)
        return keys

    def _request(self, run: OutgoingRun, base: CallbackBase) -> Request:
        endpoint, customer = run.endpoint, run.held.customer_id
        now = self._clock.now()
        body = request_body(run, base)
        headers = request_headers(run, now, self._trace_share)
        if endpoint.oidc_email is not None and self._signs:
            token = self._bearer(endpoint.audience, endpoint.oidc_email, customer)
            headers["Authorization"] = f"Bearer {token}"
        if endpoint.signing_secrets and self._signs:
            keys = self._keys(endpoint.signing_secrets, customer)
            headers |= webhook.sign(keys, run.attempt_id, body, now)
        return Request(
            url=endpoint.url,
            headers=headers,
            body=body,
            timeout_s=run.reply_us / SECOND,
            read_body=True,
            # An endpoint recognizes a request that arrives twice by its Idempotency-Key.
            keep_alive=True,
            owner=customer,
        )
