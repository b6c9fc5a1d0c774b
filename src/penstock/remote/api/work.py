"""For workers outside: claim, start, heartbeat, complete, fail.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import cast

from penstock.remote.shapes.work import (
    BeatsIn,
    BeatsOut,
    ClaimByIdIn,
    ClaimedRun,
    ClaimIn,
    ClaimOut,
    CompleteIn,
    EndOut,
    FailIn,
    HeartbeatIn,
    Holder,
    PulseOut,
    ReportsIn,
    ReportsOut,
    StartRunIn,
)
from penstock.remote.transport import Transport, quoted


class WorkApi:
    """For workers outside: claim, start, heartbeat, complete, fail."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def claim_runs(self, body: ClaimIn, *, idempotency_key: str | None = None) -> ClaimOut:
        """Claim runs that are ready, waiting for some when there are none.

        Only processors declared external are given out. A claim lapses unless the run is started or
        heard of in time.

        `POST /api/v1/scheduler/claim-runs`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/scheduler/claim-runs",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("ClaimOut", told)

    def claim_run(
        self, run_id: str, body: ClaimByIdIn, *, idempotency_key: str | None = None
    ) -> ClaimedRun:
        """Claim one given run; 409 when it is not ready or somebody else has it.

        `POST /api/v1/pipeline-runs/{run_id}/claim`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/claim",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("ClaimedRun", told)

    def start_run(
        self, run_id: str, body: StartRunIn | None = None, *, idempotency_key: str | None = None
    ) -> PulseOut:
        """A claimed run starts; it is held for five minutes from now, or from each heartbeat.

        `POST /api/v1/pipeline-runs/{run_id}/start`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/start",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("PulseOut", told)

    def heartbeat_run(
        self, run_id: str, body: HeartbeatIn | None = None, *, idempotency_key: str | None = None
    ) -> PulseOut:
        """The run goes on: it is held for five more minutes. The answer tells whether to stop.

        `POST /api/v1/pipeline-runs/{run_id}/heartbeat`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/heartbeat",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("PulseOut", told)

    def heartbeat_runs(self, body: BeatsIn, *, idempotency_key: str | None = None) -> BeatsOut:
        """Heartbeats of many runs at once; each has an outcome of its own.

        `POST /api/v1/pipeline-runs/heartbeat`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/pipeline-runs/heartbeat",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("BeatsOut", told)

    def complete_run(
        self, run_id: str, body: CompleteIn | None = None, *, idempotency_key: str | None = None
    ) -> EndOut:
        """The run did its work. Repeated by the same holder it answers what is stored.

        `POST /api/v1/pipeline-runs/{run_id}/complete`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/complete",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("EndOut", told)

    def complete_runs(self, body: ReportsIn, *, idempotency_key: str | None = None) -> ReportsOut:
        """Completions of many runs at once; each has an outcome of its own.

        `POST /api/v1/pipeline-runs/complete`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/pipeline-runs/complete",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("ReportsOut", told)

    def fail_run(self, run_id: str, body: FailIn, *, idempotency_key: str | None = None) -> EndOut:
        """The run failed: it is retried later, or it is dead.

        `POST /api/v1/pipeline-runs/{run_id}/fail`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/fail",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("EndOut", told)

    def confirm_cancel(
        self, run_id: str, body: Holder | None = None, *, idempotency_key: str | None = None
    ) -> EndOut:
        """The worker stopped a run it was asked to cancel.

        `POST /api/v1/pipeline-runs/{run_id}/cancelled`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-runs/{quoted(run_id)}/cancelled",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("EndOut", told)
