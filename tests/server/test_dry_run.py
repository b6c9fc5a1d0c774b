"""The header Dry-Run: the same checks and the same response, and nothing changes."""

import pytest

from tests.server.kit import ServedApi
from tests.server.scene import scene

DRY = {"Dry-Run": "true"}


def test_nothing_changes(served: ServedApi) -> None:
    """A change and a refusal are answered as without the header; the tables keep their rows."""
    scene(served.harness, "acme")
    admin = served.by("admin")
    body = {"scope": "customer", "subject": "acme"}
    before = served.harness.counts()
    dry = admin.call("POST", "/api/v1/pauses", body, headers=DRY)
    assert served.harness.counts() == before
    made = admin.call("POST", "/api/v1/pauses", body)
    assert (dry.status, dry.json) == (made.status, made.json)
    assert served.harness.counts() != before


def test_a_key_is_not_used_up(served: ServedApi) -> None:
    """The request of a dry run can be sent for real under the same Idempotency-Key."""
    scene(served.harness, "acme")
    admin = served.by("admin")
    named = {"Idempotency-Key": "k1"}
    body = {"scope": "customer", "subject": "acme"}
    admin.call("POST", "/api/v1/pauses", body, headers=DRY | named)
    admin.call("POST", "/api/v1/pauses", body, headers=named)
    assert admin.ok("GET", "/api/v1/pauses")


@pytest.mark.parametrize(
    ("method", "path", "given"),
    [
        ("POST", "/api/v1/pauses", "yes"),
        ("GET", "/api/v1/pauses", "true"),
        ("POST", "/api/v1/pipeline-configs/bulk", "true"),
        ("POST", "/api/v1/scheduler/trigger", "true"),
    ],
)
def test_refused(served: ServedApi, method: str, path: str, given: str) -> None:
    """An operation without a dry run is refused, never executed."""
    reply = served.by("admin").call(method, path, {}, headers={"Dry-Run": given})
    assert (reply.status, reply.json["errors"][0]["field"]) == (400, "Dry-Run")
