"""Routes for external workers: claim, start, heartbeat, complete, fail, confirm a cancellation."""

from __future__ import annotations

from typing import Final

from penstock.access.api_keys import Permission
from penstock.runs.external.client.workers import Workers
from penstock.runs.external.records import ClaimedRuns, ClaimRequest
from penstock.server.polling.poll_hub import PollKey
from penstock.server.routing.call import Call
from penstock.server.routing.declare import RouteList

_WORKER: Final = "worker-pod-abc123"
_HELD: Final = {"worker_id": _WORKER, "fencing_token": 4711}
_PROGRESS: Final = {"current_stage": "transforming", "progress_percentage": 40}
_DONE: Final = {
    "status": "SUCCESS",
    "result_summary": {"records_loaded": 1999500},
    "records_processed": 1999500,
    "actions": {"submit": [{"pipeline_template": "cost_report", "partition": "2025-12-31"}]},
    "artifacts": [{"name": "report", "uri": "gs://reports/2025-12-31.csv", "size": 52100}],
}
_FAILURE: Final = {
    "error_type": "AUTHENTICATION_FAILED",
    "error_details": {"message": "Invalid service account credentials"},
    "should_retry": False,
}

routes = RouteList(
    "work", "Runs of external workers: claim, start, heartbeat, complete, fail.", group="workers"
)


async def claim_or_wait(call: Call, request: ClaimRequest) -> ClaimedRuns:
    """Claim runs, or wait for one; with an Idempotency-Key the first response is final."""
    # Imported here because clients read the declarations of these routes without a server.
    from starlette.concurrency import run_in_threadpool

    from penstock.server.polling.long_poll import long_poll  # as above

    def attempt() -> ClaimedRuns:
        return call.write(lambda client: client.workers.claim(request))

    if request.wait_seconds == 0 or call.idempotency_key is not None:
        return await run_in_threadpool(attempt)
    key = PollKey(f"runs:{request.pool}", frozenset(request.processors), call.customer)
    return await long_poll(call, key, request.wait_seconds, attempt, ClaimedRuns(claimed_runs=[]))


routes.post(
    "/scheduler/claim-runs",
    Permission.WORK,
    Workers.claim,
    serve=claim_or_wait,
    example={
        "worker_id": _WORKER, "max_claims": 10, "wait_seconds": 20, "processors": ["cost_billing"],
    },
)  # fmt: skip
routes.post(
    "/pipeline-runs/heartbeat",
    Permission.WORK,
    Workers.heartbeat_many,
    example={
        "worker_id": _WORKER,
        "heartbeats": [{"run_id": "run_7h2kq0v3", "fencing_token": 4711, **_PROGRESS}],
    },
)
routes.post(
    "/pipeline-runs/complete",
    Permission.WORK,
    Workers.complete_many,
    example={
        "worker_id": _WORKER,
        "completions": [{"run_id": "run_7h2kq0v3", "fencing_token": 4711, **_DONE}],
    },
)
routes.post(
    "/pipeline-runs/{run_id}/claim",
    Permission.WORK,
    Workers.claim_by_id,
    example={"worker_id": _WORKER, "claim_duration_seconds": 300},
)
routes.post(
    "/pipeline-runs/{run_id}/start",
    Permission.WORK,
    Workers.start,
    accepts_grant=True,
    example={**_HELD, "execution_context": {"pod_name": _WORKER, "region": "eu-west-1"}},
)
routes.post(
    "/pipeline-runs/{run_id}/heartbeat",
    Permission.WORK,
    Workers.heartbeat,
    accepts_grant=True,
    example={**_HELD, **_PROGRESS, "records_extracted": 800000},
)
routes.post(
    "/pipeline-runs/{run_id}/complete",
    Permission.WORK,
    Workers.complete,
    accepts_grant=True,
    example={**_HELD, **_DONE},
)
routes.post(
    "/pipeline-runs/{run_id}/fail",
    Permission.WORK,
    Workers.fail,
    accepts_grant=True,
    example={**_HELD, **_FAILURE},
)
routes.post(
    "/pipeline-runs/{run_id}/cancelled",
    Permission.WORK,
    Workers.cancelled,
    accepts_grant=True,
    example=_HELD,
)
routes.get("/pipeline-runs/{run_id}/state", Permission.WORK, Workers.load_state, accepts_grant=True)
routes.post(
    "/pipeline-runs/{run_id}/state",
    Permission.WORK,
    Workers.save_state,
    accepts_grant=True,
    example={**_HELD, "state": {"page": 7}},
)
routes.post(
    "/pipeline-runs/{run_id}/log",
    Permission.WORK,
    Workers.log,
    accepts_grant=True,
    example={**_HELD, "entries": [{"message": "1,999,500 rows loaded", "level": "INFO"}]},
)
routes.post(
    "/pipeline-runs/{run_id}/wait",
    Permission.WORK,
    Workers.wait,
    accepts_grant=True,
    example={**_HELD, "trigger": {"pipeline_template": "nba", "partition": "2025-12-31"}},
)
