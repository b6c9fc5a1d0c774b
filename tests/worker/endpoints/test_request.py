"""The request of a run: headers, trace and credential."""

from __future__ import annotations

import json

import pytest

from penstock.access.run_credentials import granted, verify
from penstock.core.clock import MINUTE, SECOND
from penstock.pipelines.declare.endpoint import HttpEndpoint
from penstock.runs.external.client.holder import Claimed
from penstock.runs.rows import HeldRun
from penstock.worker.endpoints.request import (
    CallbackBase,
    OutgoingRun,
    grant_of,
    request_body,
    request_context,
    request_headers,
)
from tests.worker.kit import held_run

BASE = CallbackBase("https://penstock.example.com/", b"secret")
NOW = 1_700_000_100 * SECOND


def outgoing(run: HeldRun) -> OutgoingRun:
    claimed = Claimed(run, NOW + MINUTE, "scores", "main", "score")
    return OutgoingRun(claimed, HttpEndpoint(url="https://a.example.com/x"))


def test_a_trace_is_shared_by_a_correlation_id() -> None:
    first, second = request_context("order 7", "run_a-1"), request_context("order 7", "run_b-1")
    assert first.trace_id == second.trace_id
    assert first.span_id != second.span_id
    given = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert request_context(given, "run_a-1").trace_id == given
    assert request_context("0" * 32, "run_a-1").trace_id != "0" * 32
    assert request_context(given, "run_a-1", share=0.0).header.endswith("-00")


@pytest.mark.parametrize("text", ["a b", 'q"', "50%", "größe", "line\nbreak"])
def test_header_values_are_percent_encoded(text: str) -> None:
    headers = request_headers(outgoing(held_run(correlation_id=text)), NOW)
    value = headers["ce-correlationid"]
    assert value.isascii()
    assert not set(value) & {" ", '"', "\n"}


def test_the_cause_of_a_run_is_its_message_flow_or_config() -> None:
    run = held_run(trigger_message_id="m-1", flow_id=3, config_id=4)
    assert request_headers(outgoing(run), NOW)["ce-causationid"] == "m-1"
    run = run._replace(trigger_message_id=None)
    assert request_headers(outgoing(run), NOW)["ce-causationid"].startswith("flow_")
    run = run._replace(flow_id=None)
    assert request_headers(outgoing(run), NOW)["ce-causationid"].startswith("cfg_")
    run = run._replace(config_id=None)
    assert "ce-causationid" not in request_headers(outgoing(run), NOW)


def test_the_credential_names_run_token_and_customer() -> None:
    run = held_run(started_at=NOW)
    body = json.loads(request_body(outgoing(run), BASE))
    found = verify(b"secret", body["callback"]["token"], NOW)
    assert found == grant_of(run)
    assert granted(grant_of(run).key) == (body["run_id"], run.token)
    assert body["callback"]["fail_url"] == (
        f"https://penstock.example.com/api/v1/pipeline-runs/{body['run_id']}/fail"
    )
    assert verify(b"secret", body["callback"]["token"], grant_of(run).expires_at) is None
    assert verify(b"other", body["callback"]["token"], NOW) is None


def test_without_a_public_url_there_is_no_callback() -> None:
    body = json.loads(request_body(outgoing(held_run()), BASE._replace(url="")))
    assert body["callback"] is None


def test_the_reply_is_due_before_the_run_times_out() -> None:
    run = outgoing(held_run(max_execution_us=5 * SECOND, started_at=NOW))
    assert run.reply_us == 5 * SECOND
    body = json.loads(request_body(run, BASE))
    assert body["reply_before"] == body["timeout_at"]
