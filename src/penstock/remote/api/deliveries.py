"""Messages of a subscription: pull, ack, nack, extend, release.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import cast

from penstock.remote.shapes.deliveries import AckIn, ExtendIn, NackIn, PullIn, PullOut, SettledOut
from penstock.remote.transport import Transport, quoted


class DeliveriesApi:
    """Messages of a subscription: pull, ack, nack, extend, release."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def pull_messages(
        self,
        name: str,
        body: PullIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> PullOut:
        """Take messages under lease, waiting for some when there are none.

        `POST /api/v1/subscriptions/{name}/pull`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/pull",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("PullOut", told)

    def ack_messages(
        self,
        name: str,
        body: AckIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SettledOut:
        """Settle deliveries; a stale ack id changes nothing and is told so.

        `POST /api/v1/subscriptions/{name}/ack`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/ack",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("SettledOut", told)

    def nack_messages(
        self,
        name: str,
        body: NackIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SettledOut:
        """Give deliveries back, each with its reason.

        `POST /api/v1/subscriptions/{name}/nack`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/nack",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("SettledOut", told)

    def extend_messages(
        self,
        name: str,
        body: ExtendIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SettledOut:
        """Move deadlines of deliveries that take longer.

        `POST /api/v1/subscriptions/{name}/extend`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/extend",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("SettledOut", told)

    def release_messages(
        self,
        name: str,
        body: AckIn,
        *,
        customer_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SettledOut:
        """Give back deliveries that were not tried: ready at once, and no attempt is counted.

        `POST /api/v1/subscriptions/{name}/release`

        customer_id: Whose it is; the house's own without.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/subscriptions/{quoted(name)}/release",
            query={"customer_id": customer_id},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("SettledOut", told)
