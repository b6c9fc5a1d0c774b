"""Route of the external scheduler trigger."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from penstock.monitoring.api_models import SchedulerTickIn, SchedulerTickOut
from penstock.server.context import TickReport, Trigger
from penstock.server.params import CurrentCaller, IdempotencyKey, router
from penstock.server.responses import idempotent_action

routes = router("scheduler")


@routes.post("/scheduler/trigger", response_model=SchedulerTickOut)
def trigger(
    request: Request,
    by: CurrentCaller,
    body: SchedulerTickIn | None = None,
    _: IdempotencyKey = None,
) -> Response:
    """Run a scheduler tick, which starts everything that is due.

    The built-in scheduler does this continuously. Calling it as well starts nothing twice.
    """
    tick: Trigger = request.app.state.trigger
    asked = body or SchedulerTickIn()
    # A tick consists of many transactions and is safe to repeat.
    return idempotent_action(
        request,
        by,
        lambda: tick(asked.batch_size, asked.max_processing_time_seconds),
        _shape,
    )


def _shape(done: TickReport) -> dict[str, object]:
    return {
        "status": "completed" if done.is_complete else "out_of_time",
        "total_configs_processed": done.due,
        "total_runs_created": done.runs,
        "processing_time_seconds": round(done.seconds, 3),
    }
