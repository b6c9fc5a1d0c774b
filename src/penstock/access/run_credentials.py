"""Credentials with which the endpoint of an HTTP processor reports on one attempt of a run.

``pnr_<payload>_<signature>``: the payload names the run, the fencing token of its claim, the
customer and the expiry; the signature is an HMAC by a secret of the installation, so that a
credential is verified without a lookup. It permits calls about that run under that token and
nothing else. Pure: functions take the secret and the time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import SECOND, Micros
from penstock.core.ids import encode

PREFIX: Final = "pnr_"
RUN_SECRET: Final = "run_credentials"  # noqa: S105 - a name, not a secret
"""Name of the installation's secret that signs credentials."""
CREDENTIAL_MAX: Final = 1_024
_MAC_CHARS: Final = 43
"""Number of characters of an unpadded SHA-256 in base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGrant:
    """Permission to report on one attempt of a run."""

    run_id: int
    token: int
    customer_id: str
    expires_at: Micros

    @property
    def key(self) -> str:
        """Holder of the run in the store, different for every claim."""
        return f"{encode('run', self.run_id)}.{self.token}"


def issue(secret: bytes, grant: RunGrant) -> str:
    """Return the credential of a grant."""
    fields = [grant.run_id, grant.token, grant.customer_id, grant.expires_at // SECOND]
    body = _text(json.dumps(fields, separators=(",", ":")).encode())
    return f"{PREFIX}{body}_{_mac(secret, body)}"


def verify(secret: bytes, text: str, now: Micros) -> RunGrant | None:
    """Return the grant of a credential; None if it is forged, malformed or expired."""
    if not text.startswith(PREFIX) or len(text) > CREDENTIAL_MAX or not text.isascii():
        return None
    body, mac = text[len(PREFIX) : -_MAC_CHARS - 1], text[-_MAC_CHARS:]
    if not hmac.compare_digest(f"{PREFIX}{body}_{_mac(secret, body)}", text) or not mac:
        return None
    try:
        fields = json.loads(base64.b64decode(body + "=" * (-len(body) % 4), b"-_", validate=True))
        run_id, token, customer_id, expires_s = fields
    except (binascii.Error, ValueError):
        return None
    if now >= expires_s * SECOND:
        return None
    return RunGrant(
        run_id=run_id, token=token, customer_id=customer_id, expires_at=expires_s * SECOND
    )


def granted(key: str) -> tuple[str, int] | None:
    """Return the public run id and the token of a grant's key; None for the id of an API key."""
    run_id, dot, token = key.partition(".")
    return (run_id, int(token)) if dot else None


def _mac(secret: bytes, body: str) -> str:
    return _text(hmac.digest(secret, b"run:" + body.encode(), hashlib.sha256))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
