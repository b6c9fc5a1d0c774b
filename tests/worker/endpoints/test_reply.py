"""What the reply of an endpoint means: status, body and Retry-After."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput
from penstock.egress.http_client import HttpResponse, RequestFailed
from penstock.runs.external.client.holder import FailureReport
from penstock.runs.external.records import RunCompletion
from penstock.worker.endpoints.reply import (
    Reply,
    RunAccepted,
    failure_of_request,
    reply_of,
    slows_endpoint,
)

NOW = 1_700_000_000 * SECOND


def reply(status: int, body: Any = None, *, has_callback: bool = True, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    response = HttpResponse(status=status, headers=named, body=raw)
    return reply_of(response, NOW, has_callback=has_callback)


@pytest.mark.parametrize("body", [None, b"OK", b"[1]", b"{", b"\xff"])
def test_a_body_that_is_no_object_is_ignored(body: Any) -> None:
    assert reply(200, body) == RunCompletion()
    assert reply(204) == RunCompletion()


def test_any_other_object_is_the_result() -> None:
    assert reply(200, {"rows": 3, "status": "ok"}) == RunCompletion(
        result_summary={"rows": 3, "status": "ok"}
    )
    assert reply(201, {"status": "green"}) == RunCompletion(result_summary={"status": "green"})


def test_a_body_of_known_fields_is_a_report() -> None:
    found = reply(
        200,
        {
            "status": "ready_degraded",
            "missing": ["t.odds"],
            "records_processed": 4,
            "result_summary": {"a": 1},
            "entities": {"players": [7]},
            "retry_count": 0,
        },
    )
    assert found == RunCompletion(
        status="PARTIAL_SUCCESS",
        records_processed=4,
        result_summary={"a": 1, "missing": ["t.odds"], "entities_changed": {"players": [7]}},
    )


def test_a_report_with_a_wrong_type_fails_and_names_the_field() -> None:
    found = reply(200, {"records_processed": "many"})
    assert isinstance(found, FailureReport)
    assert (found.error_type, found.should_retry) == ("VALIDATION_ERROR", False)
    assert "records_processed" in str(found.error_details)


@pytest.mark.parametrize("status", ["waiting", "waiting_same_day", "missing_historical"])
def test_waiting_for_data_is_retried(status: str) -> None:
    found = reply(200, {"status": status, "missing": ["t.a"], "retry_count": 2}, retry_after="60")
    assert isinstance(found, FailureReport)
    assert (found.error_type, found.should_retry) == ("DATA_NOT_READY", True)
    assert found.retry_after_seconds == 60
    assert found.error_details == {
        "message": f"the endpoint replied that it waits for data ({status})",
        "http_status": 200,
        "missing": ["t.a"],
        "retry_count": 2,
    }


def test_data_that_will_not_come_fails_for_good() -> None:
    found = reply(200, {"status": "missing_required", "reason": "no schedule"})
    assert isinstance(found, FailureReport)
    assert (found.error_type, found.should_retry) == ("DATA_NOT_READY", False)
    assert found.error_details is not None
    assert found.error_details["message"] == "no schedule"


def test_a_failure_may_come_with_200() -> None:
    found = reply(200, {"status": "FAILURE", "reason": "bad row", "error_type": "BAD_ROW"})
    assert isinstance(found, FailureReport)
    assert (found.error_type, found.should_retry) == ("BAD_ROW", None)


def test_202_needs_a_way_to_report() -> None:
    assert reply(202) == RunAccepted()
    found = reply(202, has_callback=False)
    assert isinstance(found, FailureReport)
    assert "PENSTOCK_PUBLIC_URL" in str(found.error_details)


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (503, "120", 120.0),
        (429, "Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        (503, "999999999", 86_400.0),
        (503, "soon", None),
        (500, None, None),
    ],
)
def test_retry_after(status: int, header: str | None, seconds: float | None) -> None:
    found = reply(status) if header is None else reply(status, retry_after=header)
    assert isinstance(found, FailureReport)
    assert (found.retry_after_seconds, found.should_retry) == (seconds, None)


def test_the_reason_of_a_failure_is_kept_in_bounds() -> None:
    found = reply(400, {"detail": "x" * 10_000})
    assert isinstance(found, FailureReport)
    assert found.error_details is not None
    assert len(found.error_details["message"]) < 4_200


@pytest.mark.parametrize(
    ("error", "error_type", "should_retry"),
    [
        (RequestFailed("timeout", "x"), "TIMEOUT", None),
        (RequestFailed("connection", "x"), "TRANSIENT_NETWORK", None),
        (RequestFailed("certificate", "x"), "TRANSIENT_NETWORK", None),
        (RequestFailed("too_large", "x"), "VALIDATION_ERROR", False),
        (InvalidInput("url", "https", "http://x"), "INVALID_CONFIGURATION", False),
    ],
)
def test_requests_without_a_response(
    error: Any, error_type: str, should_retry: bool | None
) -> None:
    found = failure_of_request(error, reply_us=SECOND)
    assert (found.error_type, found.should_retry) == (error_type, should_retry)


def test_only_overload_slows_an_endpoint() -> None:
    assert [s for s in (200, 202, 400, 408, 422, 429, 500, 503) if slows_endpoint(reply(s), s)] == [
        408, 429, 500, 503,
    ]  # fmt: skip
    assert slows_endpoint(failure_of_request(RequestFailed("timeout", "x"), reply_us=1), None)
    refused = failure_of_request(InvalidInput("url", "https", "x"), reply_us=1)
    assert not slows_endpoint(refused, None)
