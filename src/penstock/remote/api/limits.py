"""Shared capacity and rates: holders, the line, learning.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import cast

from penstock.remote.shapes.limits import LeaseOut, LimitDetailOut, LimitIn, LimitPage, ReleaseIn
from penstock.remote.transport import Transport


class LimitsApi:
    """Shared capacity and rates: holders, the line, learning."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_limits(self, *, limit: int | None = None, cursor: str | None = None) -> LimitPage:
        """Limits by name, with what is held and how many wait.

        `GET /api/v1/limits`

        limit: Page size.
        cursor: The `next_cursor` of the page before.
        """
        told = self._transport.call(
            "GET", "/api/v1/limits", query={"limit": limit, "cursor": cursor}
        )
        return cast("LimitPage", told)

    def declare_limit(self, body: LimitIn, *, idempotency_key: str | None = None) -> LimitDetailOut:
        """Say how a limit is configured; it takes effect at once.

        `POST /api/v1/limits`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/limits", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("LimitDetailOut", told)

    def get_limit(self, *, name: str | None = None) -> LimitDetailOut:
        """A limit in full: holders, the line, waits, history.

        `GET /api/v1/limits/detail`

        name: The limit.
        """
        told = self._transport.call("GET", "/api/v1/limits/detail", query={"name": name})
        return cast("LimitDetailOut", told)

    def release_slot(self, body: ReleaseIn, *, idempotency_key: str | None = None) -> LeaseOut:
        """Take a slot from its holder and hand it on; its token is stale from now on.

        `POST /api/v1/limits/release`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/limits/release",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("LeaseOut", told)
