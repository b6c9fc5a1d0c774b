"""Runs: the local and the remote client return the same records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.core.clock import to_datetime
from penstock.core.errors import (
    ApiError,
    Conflict,
    DuplicateRequest,
    Forbidden,
    InvalidInput,
    NotFound,
    Unauthorised,
)
from penstock.remote.client import RemoteClient
from penstock.remote.transport import Transport
from penstock.runs.records import Submission
from tests.remote.test_same_records import same
from tests.server.kit import ServedApi

NIGHTLY = Submission(pipeline="nightly", customer="acme", parameters={"days": 3})


@pytest.fixture
def remote(served: ServedApi) -> Iterator[RemoteClient]:
    """Return a client of the served API."""
    yield from connected(served, "admin")


def connected(served: ServedApi, role: str | None) -> Iterator[RemoteClient]:
    """Yield a client with the key of a role."""
    key = None if role is None else served.keys[role]
    transport = Transport(f"http://127.0.0.1:{served.server.port}", key=key)
    yield RemoteClient(transport)
    transport.close()


def test_reads(served: ServedApi, remote: RemoteClient) -> None:
    """Runs, details, lists and pages are equal."""
    harness = served.harness
    dead = remote.runs.submit(NIGHTLY).run_id
    harness.fail(harness.take())
    live = remote.runs.submit(NIGHTLY).run_id
    harness.take()
    for run_id in (dead, live):
        same(served, remote, "runs", "get", run_id)
        same(served, remote, "runs", "detail", run_id)
        same(served, remote, "runs", "logs", run_id)
    same(served, remote, "runs", "list")
    now = to_datetime(harness.clock.now())
    for filters in (
        {"customer": "acme", "state": "FAILED"},
        {"since": now - timedelta(hours=1), "until": now + timedelta(seconds=1)},
        {"pipeline": "nightly", "processor": "work", "error_type": "VALIDATION_ERROR"},
        {"search": dead},
        {"before": live, "offset": 0},
        {"is_dead": True, "ended_since": now - timedelta(hours=1), "ended_until": None},
        {"is_dead": False, "waits": "ready"},
        {"sort": "running_for"},
        {"sort": "ended_at", "customer": "acme"},
        {"flow_id": "flow_00000000"},
    ):
        same(served, remote, "runs", "list", **filters)
    same(served, remote, "runs", "counts")
    same(served, remote, "runs", "counts", customer="acme", pipeline="nightly")
    with pytest.raises(TypeError, match="colour"):
        remote.runs.list(colour="red")  # type: ignore[call-arg]
    first = remote.runs.list(customer="acme", limit=1)
    assert [run.run_id for run in first.items] == [live]
    same(served, remote, "runs", "list", customer="acme", limit=1, cursor=first.next_cursor)


def test_writes(served: ServedApi, remote: RemoteClient) -> None:
    """Every field of a submission arrives; a key is the idempotency key of the request."""
    at = to_datetime(served.harness.clock.now()) + timedelta(hours=1)
    wanted = Submission(
        pipeline="pair", customer="acme", processor="left", partition="p", priority=9, at=at,
        ordering_key="k", correlation_id="c",
    )  # fmt: skip
    made = remote.runs.submit(wanted, key="order-17")
    assert remote.runs.submit(wanted, key="order-17") == made
    with pytest.raises(DuplicateRequest):
        remote.runs.submit(NIGHTLY, key="order-17")
    run = served.harness.client.runs.get(made.run_id)
    assert (run.customer, run.processor, run.partition, run.priority) == ("acme", "left", "p", 9)
    assert (run.scheduled_time, run.ordering_key, run.correlation_id) == (at, "k", "c")
    done = remote.runs.cancel(made.run_id, reason="a mistake")
    assert (done.run_id, done.outcome) == (made.run_id, "cancelled")
    assert remote.runs.detail(made.run_id).journal[-1].why == "a mistake"
    again = remote.runs.retry(made.run_id)
    assert remote.runs.get(again.run_id).parent_run_id == made.run_id
    plain = remote.runs.submit(Submission(pipeline="nightly"))
    assert remote.runs.get(plain.run_id).customer == "default"


def test_errors(served: ServedApi, remote: RemoteClient) -> None:
    """Errors have the class and the field of the local client."""
    with pytest.raises(NotFound) as missing:
        remote.runs.get("run_00000000")
    assert (missing.value.kind, missing.value.id) == ("run", "run_00000000")
    for clients in (remote, served.harness.client):
        for field, wanted in (
            ("pipeline", Submission(pipeline="nightlie", customer="acme")),
            ("priority", Submission(pipeline="nightly", customer="acme", priority=11)),
            ("customer_id", Submission(pipeline="nightly", customer="a/b")),
        ):
            with pytest.raises(InvalidInput) as bad:
                clients.runs.submit(wanted)
            assert bad.value.field == field
            assert bad.value.message.startswith(f"{field}: ")
    run_id = remote.runs.submit(NIGHTLY).run_id
    with pytest.raises(Conflict):
        remote.runs.retry(run_id)
    for viewer in connected(served, "viewer"):
        with pytest.raises(Forbidden):
            viewer.runs.cancel(run_id)
    for anonymous in connected(served, None):
        with pytest.raises(Unauthorised):
            anonymous.runs.list()
    with pytest.raises(ApiError, match=r"Runs\.submit_many"):
        remote.runs.submit_many([NIGHTLY])
