"""Route of the external scheduler trigger."""

from __future__ import annotations

from typing import Annotated, Literal

from penstock.access.api_keys import Permission
from penstock.core.records.record import Meta, Record
from penstock.server.context import Trigger
from penstock.server.routing.call import Call
from penstock.server.routing.declare import Idempotency, RouteList

routes = RouteList("scheduler", "The external scheduler trigger.")

BatchSize = Annotated[
    Annotated[int, Meta(ge=1, le=100_000)] | None,
    Meta(description="Maximum number of configs per transaction; by default `scheduler_batch`."),
]
Budget = Annotated[float, Meta(description="Time budget of the tick in seconds.", gt=0, le=3600)]


class SchedulerTick(Record):
    """The result of a scheduler tick."""

    status: Literal["completed", "out_of_time"]
    """`completed` if everything due was started, otherwise `out_of_time`."""
    total_configs_processed: int
    """Number of configs that were due."""
    total_runs_created: int
    """Number of runs that were created."""
    processing_time_seconds: float
    """Duration of the tick in seconds."""


def trigger(
    call: Call, batch_size: BatchSize = None, max_processing_time_seconds: Budget = 600
) -> SchedulerTick:
    """Run a scheduler tick, which starts everything that is due.

    The built-in scheduler does this continuously. Calling it as well does not start anything twice.
    """
    tick: Trigger = call.request.app.state.trigger

    def act(_: object) -> SchedulerTick:
        done = tick(batch_size, max_processing_time_seconds)
        return SchedulerTick(
            status="completed" if done.is_complete else "out_of_time",
            total_configs_processed=done.due,
            total_runs_created=done.runs,
            processing_time_seconds=round(done.seconds, 3),
        )

    return call.action(act)  # a tick consists of many transactions and is safe to repeat


routes.post(
    "/scheduler/trigger",
    Permission.OPERATE,
    trigger,
    covers_all_customers=True,
    accepts_token=True,
    is_slow=True,
    idempotency=Idempotency.ACTION,
    example={"batch_size": 1000, "max_processing_time_seconds": 60},
)
