"""The tick from outside: for those who trigger the scheduler themselves."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from penstock.client.repeats import Answered, MarkedStore, earlier
from penstock.http.answers import answer, request_key
from penstock.http.context import Ticked, Trigger
from penstock.http.models.views import TriggerIn, TriggerOut
from penstock.http.parts import By, Repeat, router

routes = router("scheduler")


@routes.post("/scheduler/trigger", response_model=TriggerOut)
def trigger(
    request: Request, by: By, body: TriggerIn | None = None, key: Repeat = None
) -> Response:
    """Start everything that is due, now.

    Penstock's own scheduler does this continuously; calling it as well starts nothing twice.
    """
    tick: Trigger = request.app.state.trigger
    asked = body or TriggerIn()

    if key is None:
        return answer(_shape(tick(asked.batch_size, asked.max_processing_time_seconds)))
    # A tick is many transactions and harmless to repeat: its answer is kept once it is known.
    mark = request_key(request, by, key)
    before = earlier(by.client.store, mark)
    if before is None:
        done = tick(asked.batch_size, asked.max_processing_time_seconds)
        store = MarkedStore(by.client.store, mark, _shape)
        try:
            store.write(lambda _: done)
        except Answered as other:
            before = other.answer
        else:
            return answer(store.answer)
    return answer(before, headers={"Idempotency-Replayed": "true"})


def _shape(done: Ticked) -> dict[str, object]:
    return {
        "status": "completed" if done.is_complete else "out_of_time",
        "total_configs_processed": done.due,
        "total_runs_created": done.runs,
        "processing_time_seconds": round(done.seconds, 3),
    }
