"""Authentication of incoming pushes by signed tokens; API keys are not accepted.

The token is verified against the settings of the subscription before the body is read. A rejection
does not reveal the reason to the sender; the reason is emitted as an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.audit.telemetry import Events, PushRefused
from penstock.bus.incoming.inbound_push import IncomingPush
from penstock.core.errors import PenstockError, StoreError
from penstock.egress.oidc import InvalidToken
from penstock.egress.policy import STRICT, EgressRules
from penstock.server.auth import CHALLENGE
from penstock.server.overload.admission import BoundedThreads
from penstock.server.problems import Refused

RETRY: Final = {"Retry-After": "10"}
TOKEN_NEEDED: Final = "A valid token is required: Authorization: Bearer …"  # noqa: S105 - a message, not a token


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAuth:
    """Settings of incoming pushes, the token verifier, and the public keys of outgoing pushes."""

    incoming: Mapping[str, IncomingPush] = field(default_factory=dict)
    verify: Callable[[object, IncomingPush], Any] | None = None
    """Raises InvalidToken, or another PenstockError if the token cannot be verified at present."""
    keys: Callable[[], list[dict[str, str]]] = list
    issuer: str = ""
    rules: EgressRules = STRICT
    """Allowed endpoints of push subscriptions."""


async def authenticate_push(
    settings: PushAuth, events: Events, name: str, authorization: str, threads: BoundedThreads
) -> IncomingPush:
    """Return the settings of the subscription after verifying the sender's token in a thread.

    The threads are those for unknown senders: their tokens do not delay requests with a key.
    """
    row = settings.incoming.get(name)

    def refused(status: int, reason: str, detail: str, **more: str) -> Refused:
        events.emit(PushRefused(subscription=name[:255], status=status, reason=reason))
        return Refused(status, detail, headers=more)

    if row is None or settings.verify is None:
        raise refused(401, "not in incoming_push", TOKEN_NEEDED, **CHALLENGE)
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise refused(401, "no bearer token", TOKEN_NEEDED, **CHALLENGE)
    try:
        await threads.run(partial(settings.verify, token.strip(), row))
    except InvalidToken as error:
        if error.is_authentic:
            raise refused(403, error.reason, "The token is not valid for this endpoint.") from None
        raise refused(401, error.reason, TOKEN_NEEDED, **CHALLENGE) from None
    except StoreError:
        raise
    except PenstockError as error:
        detail = "The token cannot be verified at present: try again."
        raise refused(503, error.message, detail, **RETRY) from None
    return row
