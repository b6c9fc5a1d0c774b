"""A fake endpoint for tests of flows: a function that replaces an HTTP processor's endpoint.

The request is built and the response interpreted as in the dispatcher; nothing is sent.
"""

from __future__ import annotations

from penstock.core.clock import SECOND
from penstock.core.stored_json import canonical_json
from penstock.runs.external.client.holder import Claimed, FailureReport
from penstock.runs.external.records import RunCompletion
from penstock.worker.context import RunContext
from penstock.worker.endpoints.exchange import FakeReply, fake_response
from penstock.worker.endpoints.reply import reply_of
from penstock.worker.endpoints.request import CallbackBase, OutgoingRun, request_body
from penstock.worker.outcome import AttemptOutcome


def replied(run: RunContext, respond: FakeReply) -> AttemptOutcome:
    """Call a fake endpoint with the request of a run; return the outcome of its response."""
    endpoint = run.declared.terms.endpoint
    assert endpoint is not None, f"{run.declared.path} is not an HTTP processor"
    held = run.held
    claimed = Claimed(held, held.scheduled_time, run.pipeline, run.phase, run.processor)
    request = request_body(OutgoingRun(claimed, endpoint), CallbackBase("", b""))
    reply = reply_of(fake_response(respond, request), held.scheduled_time, has_callback=False)
    if isinstance(reply, RunCompletion):
        summary = reply.result_summary
        return AttemptOutcome(
            status=reply.status,
            result=None if summary is None else canonical_json(summary),
            records=reply.records_processed,
            bytes=reply.bytes_processed,
        )
    assert isinstance(reply, FailureReport), reply
    after = reply.retry_after_seconds
    return AttemptOutcome(
        error_type=str(reply.error_type),
        details=canonical_json(reply.error_details or {}),
        force_retry=reply.should_retry,
        retry_after_us=None if after is None else int(after * SECOND),
    )
