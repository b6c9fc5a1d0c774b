"""Who may push to us: a signed token opens these paths, no API key does.

Before a byte of the body is read, the token is verified against what the settings say of this
subscription. Whoever is refused hears the same whatever was wrong; the reason goes to the events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.audit.telemetry import Events, PushRefused
from penstock.bus.incoming.inbound_push import IncomingPush
from penstock.core.errors import PenstockError, StoreError
from penstock.egress.oidc import Untrusted
from penstock.egress.policy import STRICT, EgressRules
from penstock.server.auth import CHALLENGE
from penstock.server.problems import Refused

RETRY: Final = {"Retry-After": "10"}
NOBODY: Final = "A token that this endpoint accepts is needed: Authorization: Bearer …"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """Who may push here, how that is verified, and the keys that our own tokens are signed with."""

    incoming: Mapping[str, IncomingPush] = field(default_factory=dict)
    verify: Callable[[object, IncomingPush], Any] | None = None
    """Raises Untrusted, or another of our errors when nobody can say for now."""
    keys: Callable[[], list[dict[str, str]]] = list
    issuer: str = ""
    rules: EgressRules = STRICT
    """Where push subscriptions that are declared here may point."""


def checked(door: Receiving, events: Events, name: str, authorization: str) -> IncomingPush:
    """The subscription that a request is for, once its token proved who sends it."""
    row = door.incoming.get(name)

    def refused(status: int, reason: str, detail: str, **more: str) -> Refused:
        events.emit(PushRefused(subscription=name[:255], status=status, reason=reason))
        return Refused(status, detail, headers=more)

    if row is None or door.verify is None:
        raise refused(401, "not in incoming_push", NOBODY, **CHALLENGE)
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise refused(401, "no bearer token", NOBODY, **CHALLENGE)
    try:
        door.verify(token.strip(), row)
    except Untrusted as error:
        if error.is_known:
            raise refused(403, error.reason, "This token is not for this endpoint.") from None
        raise refused(401, error.reason, NOBODY, **CHALLENGE) from None
    except StoreError:
        raise
    except PenstockError as error:
        told = "The token cannot be verified for now: try again."
        raise refused(503, error.message, told, **RETRY) from None
    return row
