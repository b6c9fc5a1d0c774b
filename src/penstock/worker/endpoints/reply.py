"""Interpretation of an endpoint's response: done, accepted or failed.

Pure. The body of a 2xx response has the fields of a `complete` request, with `reason`, `missing`
and `retry_count` as in the response to a push, or it is any other JSON object, which is the result
itself. A body that is not JSON is ignored. Every other response fails the run; its body may give a
`reason`, an `error_type` and whether to retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.bus.push.push_config import retry_after
from penstock.core import json_profile
from penstock.core.clock import DAY, SECOND, Micros, format_duration
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.exception_families import http_error_type
from penstock.core.records.validation import convert_input
from penstock.core.retry import ErrorType
from penstock.egress.http_client import HttpResponse, RequestFailed
from penstock.flows.gates.verdict import GateStatus
from penstock.runs.external.client.holder import FailureReport
from penstock.runs.external.records import RunCompletion

ACCEPTED: Final = 202
NO_DATA: Final = "DATA_NOT_READY"
"""Error type of a run whose endpoint reported missing data; it is retried later."""
REASON_MAX: Final = 4_096
RETRY_AFTER_MAX_US: Final = DAY
RETRIED_4XX: Final = frozenset({408, 425, 429})
"""Statuses below 500 that are retried."""

_WAITING: Final = frozenset(
    {
        GateStatus.WAITING, GateStatus.WAITING_SAME_DAY, GateStatus.MISSING_HISTORICAL,
        GateStatus.MISSING_SAME_DAY,
    }
)  # fmt: skip
_GATE_FIELDS: Final = frozenset({"status", "reason", "missing", "retry_count"})
_FAILURE_FIELDS: Final = frozenset({"error_type", "should_retry", "retry_after_seconds"})
_KNOWN_FIELDS: Final = (
    frozenset(RunCompletion.__struct_encode_fields__)
    | _GATE_FIELDS
    | _FAILURE_FIELDS
    | {"entities"}
)
_DONE: Final = frozenset({"done", "ready", "already_processed", "success"})
_FAILED: Final = frozenset({"failure", "failed"})
_PARTIAL: Final = frozenset({"partial_success", "degraded", GateStatus.READY_DEGRADED})


class RunAccepted(NamedTuple):
    """The endpoint accepted the run and reports its result later."""


Reply: TypeAlias = RunCompletion | FailureReport | RunAccepted


def reply_of(response: HttpResponse, now: Micros, *, has_callback: bool) -> Reply:
    """Interpret a response; `has_callback`: whether the endpoint can report later."""
    status = response.status
    if status == ACCEPTED:
        if has_callback:
            return RunAccepted()
        return FailureReport(
            error_type=ErrorType.INVALID_CONFIGURATION,
            error_details=_details(
                status,
                "the endpoint replied 202, but it cannot report the result: set public_url "
                "(PENSTOCK_PUBLIC_URL) to the URL at which it reaches this API",
            ),
            should_retry=False,
        )
    body = _body(response)
    if 200 <= status < 300:
        return _done(response, body, now)
    if 300 <= status < 400:
        message = (
            f"the endpoint redirects ({status}), and redirects are not followed: declare the URL "
            "that it redirects to"
        )
        return FailureReport(
            error_type=ErrorType.INVALID_CONFIGURATION,
            error_details=_details(status, message),
            should_retry=False,
        )
    return _failed(response, body or {}, now)


def failure_of_request(error: RequestFailed | PenstockError, *, reply_us: Micros) -> FailureReport:
    """Return the failure of a request without a response; `reply_us` is its timeout."""
    if not isinstance(error, RequestFailed):  # the rules for outgoing requests, a missing secret
        return FailureReport(
            error_type=ErrorType.INVALID_CONFIGURATION,
            error_details={"message": error.message},
            should_retry=False,
        )
    if error.kind == "timeout":
        message = (
            f"the endpoint did not reply within {format_duration(reply_us)}: raise reply_within, "
            "or reply 202 and report the result later"
        )
        return FailureReport(error_type=ErrorType.TIMEOUT, error_details={"message": message})
    if error.kind == "too_large":
        return FailureReport(
            error_type=ErrorType.VALIDATION_ERROR,
            error_details={
                "message": f"{error.message}: store the data and reply with a reference"
            },
            should_retry=False,
        )
    return FailureReport(
        error_type=ErrorType.TRANSIENT_NETWORK, error_details={"message": error.message}
    )


def slows_endpoint(reply: Reply, status: int | None) -> bool:
    """Return whether an endpoint is overloaded or failing, so that it gets fewer requests."""
    if status is None:
        return isinstance(reply, FailureReport) and reply.should_retry is not False
    return status in RETRIED_4XX or status >= 500


def _body(response: HttpResponse) -> Mapping[str, Any] | None:
    """Return the JSON object of a response; None if its body is anything else."""
    if not response.body:
        return None
    try:
        value = json_profile.parse_json(response.body)
    except PenstockError:
        return None
    return value if isinstance(value, Mapping) else None


def _done(response: HttpResponse, body: Mapping[str, Any] | None, now: Micros) -> Reply:
    if body is None:
        return RunCompletion()
    if not body.keys() <= _KNOWN_FIELDS or not _is_known(body.get("status")):
        return RunCompletion(result_summary=dict(body))
    status = response.status
    word = str(body.get("status") or "done").lower()
    if word in _FAILED:
        return _failed(response, body, now)
    if word in _WAITING:
        reason = _reason(body) or f"the endpoint replied that it waits for data ({word})"
        return FailureReport(
            error_type=NO_DATA,
            error_details=_details(status, reason, body),
            should_retry=True,
            retry_after_seconds=_delay_s(response, body, now),
        )
    if word not in _DONE | _PARTIAL:  # fail_if_missing, a deadlock: more attempts do not help
        reason = _reason(body) or f"the endpoint replied {word}"
        return FailureReport(
            error_type=NO_DATA, error_details=_details(status, reason, body), should_retry=False
        )
    ignored = _GATE_FIELDS | _FAILURE_FIELDS
    given = {name: value for name, value in body.items() if name not in ignored}
    entities = given.pop("entities", None)
    summary = given.pop("result_summary", None)
    noted = {name: body[name] for name in ("reason", "missing") if body.get(name)}
    if entities is not None:
        noted["entities_changed"] = entities
    if noted:
        summary = {**(summary if isinstance(summary, Mapping) else {}), **noted}
    given["status"] = "PARTIAL_SUCCESS" if word in _PARTIAL else "SUCCESS"
    try:
        completion: RunCompletion = convert_input(
            {**given, "result_summary": summary}, RunCompletion
        )
    except InvalidInput as error:
        return FailureReport(
            error_type=ErrorType.VALIDATION_ERROR,
            error_details=_details(
                status, f"the reply of the endpoint is invalid: {error.message}"
            ),
            should_retry=False,
        )
    return completion


def _is_known(word: object) -> bool:
    """Return whether a status is one that Penstock defines; any other is part of the result."""
    if word is None:
        return True
    known = _DONE | _PARTIAL | _FAILED | frozenset(GateStatus)
    return isinstance(word, str) and word.lower() in known


def _failed(response: HttpResponse, body: Mapping[str, Any], now: Micros) -> FailureReport:
    status = response.status
    own, forced = body.get("error_type"), body.get("should_retry")
    is_permanent = 400 <= status < 500 and status not in RETRIED_4XX
    usual = ErrorType.UNKNOWN if status < 400 else http_error_type(status)
    reason, found = f"the endpoint replied {status}", _reason(body)
    return FailureReport(
        error_type=own if isinstance(own, str) and own.strip() else usual,
        error_details=_details(status, f"{reason}: {found}" if found else reason, body),
        should_retry=forced if isinstance(forced, bool) else False if is_permanent else None,
        retry_after_seconds=_delay_s(response, body, now),
    )


def _delay_s(response: HttpResponse, body: Mapping[str, Any], now: Micros) -> float | None:
    """Return the delay in seconds that the endpoint requested, in a header or in the body."""
    delay = retry_after(response.headers.get("retry-after"), now, RETRY_AFTER_MAX_US)
    if delay is not None:
        return delay / SECOND
    stated = body.get("retry_after_seconds")
    if not isinstance(stated, int | float) or isinstance(stated, bool) or not stated >= 0:
        return None
    return min(float(stated), RETRY_AFTER_MAX_US / SECOND)


def _reason(body: Mapping[str, Any]) -> str:
    """Return the explanation in a body: `reason`, or the field of a common error format."""
    for name in ("reason", "detail", "message", "error", "title"):
        text = body.get(name)
        if isinstance(text, str) and text.strip():
            return text.strip()[:REASON_MAX]
    return ""


def _details(status: int, message: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    details: dict[str, Any] = {"message": message, "http_status": status}
    for name in ("missing", "retry_count"):
        if body and body.get(name):
            details[name] = body[name]
    return details
