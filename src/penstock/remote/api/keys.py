"""API keys.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.keys import KeyIn, KeyMade, KeyPage, ListKeysQuery, RevokeIn, RotateIn
from penstock.remote.shapes.views import Changed
from penstock.remote.transport import Transport, quoted


class KeysApi:
    """API keys."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_keys(self, **query: Unpack[ListKeysQuery]) -> KeyPage:
        """Keys, oldest first, without their secrets.

        `GET /api/v1/keys`
        """
        told = self._transport.call("GET", "/api/v1/keys", query=query)
        return cast("KeyPage", told)

    def create_key(self, body: KeyIn, *, idempotency_key: str | None = None) -> KeyMade:
        """Make a key; the answer shows it this once.

        `POST /api/v1/keys`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/keys", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("KeyMade", told)

    def rotate_key(
        self, key_id: str, body: RotateIn | None = None, *, idempotency_key: str | None = None
    ) -> KeyMade:
        """Give a key a new secret; the old one holds for the overlap.

        `POST /api/v1/keys/{key_id}/rotate`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/keys/{quoted(key_id)}/rotate",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("KeyMade", told)

    def revoke_key(
        self, key_id: str, body: RevokeIn | None = None, *, idempotency_key: str | None = None
    ) -> Changed:
        """End a key for good; it holds nowhere within 60 seconds.

        `POST /api/v1/keys/{key_id}/revoke`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/keys/{quoted(key_id)}/revoke",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("Changed", told)
