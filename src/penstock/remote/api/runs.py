"""Submit, list, cancel and retry runs.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.runs import (
    CancelIn,
    CancelOut,
    ListCustomerRunsQuery,
    RunDetailOut,
    RunPage,
    RunRef,
    SubmitIn,
)
from penstock.remote.transport import Transport, quoted


class RunsApi:
    """Submit, list, cancel and retry runs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit_run(
        self, customer_id: str, body: SubmitIn, *, idempotency_key: str | None = None
    ) -> RunRef:
        """Create a run; it is durable when this answers.

        `POST /api/v1/customers/{customer_id}/pipeline-runs`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/customers/{quoted(customer_id)}/pipeline-runs",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("RunRef", told)

    def list_customer_runs(
        self, customer_id: str, **query: Unpack[ListCustomerRunsQuery]
    ) -> RunPage:
        """A customer's runs: live ones first, then ended ones, newest first.

        `GET /api/v1/customers/{customer_id}/pipeline-runs`
        """
        told = self._transport.call(
            "GET", f"/api/v1/customers/{quoted(customer_id)}/pipeline-runs", query=query
        )
        return cast("RunPage", told)

    def list_runs(self, **query: Unpack[ListCustomerRunsQuery]) -> RunPage:
        """Everybody's runs: live ones first, then ended ones, newest first.

        `GET /api/v1/pipeline-runs`
        """
        told = self._transport.call("GET", "/api/v1/pipeline-runs", query=query)
        return cast("RunPage", told)

    def get_run(self, run_id: str) -> RunDetailOut:
        """A run with its attempts, its journal and its progress.

        `GET /api/v1/pipeline-runs/{run_id}`
        """
        told = self._transport.call("GET", f"/api/v1/pipeline-runs/{quoted(run_id)}")
        return cast("RunDetailOut", told)

    def cancel_run(
        self, run_id: str, body: CancelIn | None = None, *, idempotency_key: str | None = None
    ) -> CancelOut:
        """Cancel a pending run at once; ask the holder of a running one (it learns by heartbeat).

        `POST /api/v1/pipeline-runs/{run_id}/cancel`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/cancel",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("CancelOut", told)

    def retry_run(self, run_id: str, *, idempotency_key: str | None = None) -> RunRef:
        """Run an ended run again, now, as a new chain of attempts.

        `POST /api/v1/pipeline-runs/{run_id}/retry`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/retry",
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("RunRef", told)
