"""Subscriptions: make and change them; pause, seek, purge.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.subscriptions import (
    ListSubscriptionsQuery,
    PausedIn,
    PurgeOut,
    SeekIn,
    SeekOut,
    SubscriptionDetailOut,
    SubscriptionIn,
    SubscriptionOut,
    SubscriptionPage,
)
from penstock.remote.shapes.topics import Done
from penstock.remote.transport import Transport, quoted


class SubscriptionsApi:
    """Subscriptions: make and change them; pause, seek, purge."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def declare_subscription(
        self,
        body: SubscriptionIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SubscriptionOut:
        """Make a subscription, or change it to what is said here.

        `POST /api/v1/subscriptions`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/subscriptions",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("SubscriptionOut", told)

    def list_subscriptions(self, **query: Unpack[ListSubscriptionsQuery]) -> SubscriptionPage:
        """Subscriptions by name.

        `GET /api/v1/subscriptions`
        """
        told = self._transport.call("GET", "/api/v1/subscriptions", query=query)
        return cast("SubscriptionPage", told)

    def get_subscription(
        self, name: str, *, customer_id: str | None = None
    ) -> SubscriptionDetailOut:
        """A subscription, what waits in it and what became of the rest.

        `GET /api/v1/subscriptions/{name}`

        customer_id: Whose it is; the house's own without.
        """
        told = self._transport.call(
            "GET", f"/api/v1/subscriptions/{quoted(name)}", query={"customer_id": customer_id}
        )
        return cast("SubscriptionDetailOut", told)

    def delete_subscription(self, name: str, *, customer_id: str | None = None) -> Done:
        """Delete a subscription; what waits in it is purged.

        `DELETE /api/v1/subscriptions/{name}`

        customer_id: Whose it is; the house's own without.
        """
        told = self._transport.call(
            "DELETE", f"/api/v1/subscriptions/{quoted(name)}", query={"customer_id": customer_id}
        )
        return cast("Done", told)

    def pause_subscription(
        self,
        name: str,
        body: PausedIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SubscriptionOut:
        """Stop handing over, or go on; what is out may still be acked.

        `POST /api/v1/subscriptions/{name}/pause`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/pause",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("SubscriptionOut", told)

    def seek_subscription(
        self,
        name: str,
        body: SeekIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SeekOut:
        """Go to a time: what was published since comes again, what is older is purged.

        `POST /api/v1/subscriptions/{name}/seek`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/seek",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("SeekOut", told)

    def purge_subscription(
        self, name: str, *, customer_id: str | None = None, idempotency_key: str | None = None
    ) -> PurgeOut:
        """Drop everything that waits.

        `POST /api/v1/subscriptions/{name}/purge`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/purge",
            query={"customer_id": customer_id},
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("PurgeOut", told)
