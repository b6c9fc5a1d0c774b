"""The tick from outside.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import cast

from penstock.remote.shapes.scheduler import TriggerIn, TriggerOut
from penstock.remote.transport import Transport


class SchedulerApi:
    """The tick from outside."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def trigger(
        self, body: TriggerIn | None = None, *, idempotency_key: str | None = None
    ) -> TriggerOut:
        """Start everything that is due, now.

        Penstock's own scheduler does this continuously; calling it as well starts nothing twice.

        `POST /api/v1/scheduler/trigger`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/scheduler/trigger",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("TriggerOut", told)
