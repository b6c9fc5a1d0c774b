"""The worker fast path: serves frequent calls of workers without the layers that they do not need.

It serves start, heartbeat, complete and fail of one run, for keys that are not restricted to a
customer and requests without an Idempotency-Key. All other requests, and unusual ones of these
kinds, use the routes in `runs.external.api`. Key, role, rate, JSON profile and models are the same.
Calls that arrive together are committed together (`group_commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import Response
from starlette.types import Scope

from penstock.access.api_keys import Permission
from penstock.core import json_profile
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.records.record import encode_record
from penstock.core.records.validation import convert_input
from penstock.runs.external.client.heartbeats import HeartbeatCall, StartCall
from penstock.runs.external.client.holder import TransitionRequest
from penstock.runs.external.client.reports import check_progress, completion_call, failure_call
from penstock.runs.external.client.work import ClaimStatus, ExternalWorker, WorkerCall
from penstock.runs.external.client.workers import run_key
from penstock.runs.external.from_rows import (
    completion_of,
    ended_record,
    failure_of,
    held_record,
    progress_of,
)
from penstock.runs.external.records import (
    RunCompletion,
    RunFailure,
    RunHeartbeat,
    RunHolder,
    RunStart,
)
from penstock.runs.states import RunState
from penstock.server.access import forbidden
from penstock.server.auth import Caller, KeyCache, bearer
from penstock.server.overload.middleware import WORKER_PREFIX, AccessRecord
from penstock.server.polling.group_commit import GroupCommit
from penstock.server.problems import Refused, error_response

EXCLUDED_HEADERS: Final = (b"idempotency-key", b"x-worker-id", b"expect")
ID_MAX: Final = 64
BODY_MAX: Final = 16_384


class WorkerOperation(NamedTuple):
    """An operation on a run: record of its body, whether one is required, and its validator."""

    record: type[RunHolder]
    is_required: bool
    request: Callable[[Caller, int, Any], WorkerCall]


def start_request(by: Caller, number: int, report: RunStart) -> WorkerCall:
    """Validate a start request."""
    where = report.execution_context
    pod = None if where is None else where.pod_name
    region = None if where is None else where.region
    return StartCall(_call(by, number, report, RunState.RUNNING), pod, region)


def heartbeat_request(by: Caller, number: int, report: RunHeartbeat) -> WorkerCall:
    """Validate a heartbeat."""
    progress = progress_of(report)
    check_progress(progress)
    return HeartbeatCall(_call(by, number, report, RunState.RUNNING), progress)


def completion_request(by: Caller, number: int, report: RunCompletion) -> WorkerCall:
    """Validate a completion."""
    return completion_call(_call(by, number, report, RunState.COMPLETED), completion_of(report))


def failure_request(by: Caller, number: int, report: RunFailure) -> WorkerCall:
    """Validate a failure report."""
    return failure_call(_call(by, number, report, RunState.FAILED), failure_of(report))


def _call(by: Caller, number: int, report: RunHolder, to_state: RunState) -> TransitionRequest:
    worker = ExternalWorker(report.worker_id, by.key)
    return TransitionRequest(number, report.fencing_token, worker, to_state)


OPERATIONS: Final[Mapping[str, WorkerOperation]] = {
    "start": WorkerOperation(RunStart, False, start_request),
    "heartbeat": WorkerOperation(RunHeartbeat, False, heartbeat_request),
    "complete": WorkerOperation(RunCompletion, False, completion_request),
    "fail": WorkerOperation(RunFailure, True, failure_request),
}


class WorkerFastPath:
    """Serves the operations of `OPERATIONS`; `entry` selects the requests."""

    def __init__(self, keyring: KeyCache, heartbeats: GroupCommit, changes: GroupCommit) -> None:
        """Use separate queues, so that heartbeats never wait behind slower changes."""
        self._keyring = keyring
        self._heartbeats = heartbeats
        self._changes = changes

    def match(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[str, str] | None:
        """Return (verb, run id) of a request that the fast path serves, else None."""
        path: str = scope["path"]
        if scope["method"] != "POST" or not path.startswith(WORKER_PREFIX) or scope["query_string"]:
            return None
        run_id, _, verb = path[len(WORKER_PREFIX) :].partition("/")
        if (
            verb not in OPERATIONS
            or len(run_id) > ID_MAX
            or any(name in headers for name in EXCLUDED_HEADERS)
        ):
            return None
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or len(length) > 6 or int(length) > BODY_MAX:
            return None
        known = self._keyring.cached(_key(headers))
        # Keys that are not cached, or are restricted to a customer, use the regular routes.
        if known is None or known.caller is None or known.caller.customer is not None:
            return None
        return verb, run_id

    async def serve(
        self,
        entry: tuple[str, str],
        headers: Mapping[bytes, bytes],
        body: bytes,
        access: AccessRecord,
    ) -> Response:
        """Serve a request that `match` accepted."""
        verb, run_id = entry
        route = f"{WORKER_PREFIX}{{run_id}}/{verb}"
        access.route = route
        caller = self._keyring.admit(await self._keyring.authenticate(_key(headers)))
        access.key = caller.principal.name
        if not caller.principal.role.has_permission(Permission.WORK):
            raise Refused(403, forbidden(caller.principal.role, Permission.WORK))
        try:
            parsed = _read(OPERATIONS[verb], headers, body)
            ask = OPERATIONS[verb].request(caller, run_key(run_id), parsed)
            queue = self._heartbeats if verb == "heartbeat" else self._changes
            outcome = await queue.execute(ask)
        except PenstockError as error:
            outcome = error
        if isinstance(outcome, PenstockError):
            return error_response(outcome, access.request_id)
        assert not isinstance(outcome, Exception), outcome
        record = held_record(outcome) if isinstance(outcome, ClaimStatus) else ended_record(outcome)
        return Response(encode_record(record), media_type="application/json")


def _key(headers: Mapping[bytes, bytes]) -> str:
    try:
        return bearer(headers.get(b"authorization", b"").decode("latin-1"))
    except Refused:
        return ""


def _read(verb: WorkerOperation, headers: Mapping[bytes, bytes], body: bytes) -> RunHolder:
    """Parse the body under the strict JSON profile and validate it."""
    if body:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise Refused(415, "Content-Type: expected application/json.")
        value = json_profile.parse_json(body)
        if value is not None or verb.is_required:
            record: RunHolder = convert_input(value, verb.record)
            return record
    elif verb.is_required:
        raise InvalidInput("body", "a JSON object", None, "Send the request with a body.")
    return verb.record()
