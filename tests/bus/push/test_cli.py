"""Push subscriptions in `doctor`, in the event log and in the metrics."""

import json

import pytest

from penstock import connect
from penstock.audit.telemetry import PushAccepted, PushPosted, PushRefused
from penstock.bus.records import OidcSettings, PushSettings, Subscription, Topic
from penstock.cli.logging import EventLog, describe_event
from penstock.telemetry.catalog import LABEL_VALUES_MAX
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import unknown_name
from tests.kits.shell import Shell
from tests.telemetry.stream import emitting


def posted(name: str = "hook", outcome: str = "ack", **more: object) -> PushPosted:
    fields: dict[str, object] = {
        "subscription": name, "customer_id": "acme", "message_id": 7, "attempt": 1,
        "outcome": outcome, "status": 200, "failure": "", "seconds": 0.2, "window": 4, **more,
    }  # fmt: skip
    return PushPosted(**fields)  # type: ignore[arg-type]


def declare(shell: Shell, name: str, push: PushSettings) -> None:
    with connect(shell.url) as client:
        client.topics.create(Topic(name="orders"))
        wanted = Subscription(
            name=name, topic="orders", dead_letter_topic="orders.dlq", kind="push", push=push
        )
        client.subscriptions.declare(wanted)


class TestDoctor:
    """The check of push subscriptions."""

    def found(self, shell: Shell) -> dict[str, str]:
        checks = shell("doctor", "--json", "--skip-journal").json()["checks"]
        return {check["check"]: check for check in checks}["push"]  # type: ignore[no-any-return]

    def test_ok(self, shell: Shell) -> None:
        declare(shell, "good", PushSettings(endpoint="https://hooks.example.com/"))
        assert self.found(shell)["verdict"] == "OK"

    def test_problems_are_listed(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """Forbidden endpoints, tokens without an issuer and paused subscriptions are warnings."""
        declare(shell, "inside", PushSettings(endpoint="https://10.0.0.1/"))
        declare(shell, "plain", PushSettings(endpoint="http://hooks.example.com/"))
        token = OidcSettings(email="push@example.com")
        declare(shell, "signed", PushSettings(endpoint="https://hooks.example.com/", oidc=token))
        declare(shell, "gone", PushSettings(endpoint="https://hooks.example.com/"))
        with connect(shell.url) as client:
            client.subscriptions.pause("gone", True)
        check = self.found(shell)
        assert check["verdict"] == "WARN"
        for word in (
            "inside: push_endpoint",
            "plain: push_endpoint",
            "public_url",
            "gone: the subscription is paused",
        ):
            assert word in check["says"]
        monkeypatch.setenv("PENSTOCK_EGRESS_HTTP", "allowed")
        monkeypatch.setenv("PENSTOCK_EGRESS_PRIVATE", "allowed")
        monkeypatch.setenv("PENSTOCK_PUBLIC_URL", "https://penstock.example.com")
        assert self.found(shell)["says"] == "gone: the subscription is paused"


def test_rotate_push_key(shell: Shell) -> None:
    """Each rotation creates a new key; the private key is never printed."""
    first, second = (shell.json("db", "rotate-push-key")["key_id"] for _ in range(2))
    assert first != second
    assert "PRIVATE" not in shell.ok("db", "rotate-push-key")


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("INCOMING_PUSH", "[]", "table"), ("INCOMING_PUSH", "{", "JSON"),
        ("INCOMING_PUSH", '{"a": {"topic": "abc"}}', "audience"),
        ("EGRESS_HTTP", "yes", "never or allowed"), ("PUSH_THREADS", "0", "at least 1"),
    ],
)  # fmt: skip
def test_invalid_settings(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, word: str
) -> None:
    monkeypatch.setenv(f"PENSTOCK_{variable}", value)
    result = shell("status")
    assert result.code == 2
    assert word in result.err


class TestLog:
    """Log lines about pushes."""

    def test_levels(self) -> None:
        assert describe_event(posted())[0] == "debug"
        level, text = describe_event(posted(outcome="nack", status=None, failure="timeout"))
        assert (level, text) == ("warning", "push hook: 7 nack (timeout)")
        refused = PushRefused(subscription="orders", status=401, reason="exp: expired")
        assert describe_event(refused) == ("warning", "push to orders refused (401): exp: expired")
        kept = PushAccepted(subscription="orders", message_id="", outcome="kept")
        assert describe_event(kept) == ("error", "push to orders: a message stored as poison")

    def test_frequent_refusals_are_counted(self) -> None:
        lines: list[str] = []
        log = EventLog(lines.append, as_json=False, level="warning")
        for _ in range(500):
            log(PushRefused(subscription="orders", status=401, reason="no token"))
        log.flush()
        assert len(lines) < 200


def test_meters() -> None:
    """Metrics are labelled by subscription; the number of labels is bounded and input escaped."""
    meters = ProcessMetrics(unknown_name)
    emitting(meters, posted())
    emitting(meters, posted(outcome="nack", status=None, failure="timeout", window=2))
    emitting(meters, PushAccepted(subscription="orders", message_id="1", outcome="published"))
    emitting(meters, PushRefused(subscription='evil"\n', status=401, reason="x"))
    for n in range(LABEL_VALUES_MAX + 50):
        emitting(meters, posted(f"s{n}"))
    text = meters.text().decode()
    for line in (
        'penstock_push_requests_total{response="200",subscription="hook"} 1.0',
        'penstock_push_requests_total{response="timeout",subscription="hook"} 1.0',
        'penstock_push_request_seconds_count{subscription="hook"} 2.0',
        'penstock_push_window{subscription="hook"} 2.0',
        'penstock_push_received_total{outcome="published",subscription="orders"} 1.0',
        'penstock_push_received_total{outcome="refused 401",subscription=""} 1.0',
        'penstock_push_window{subscription="other"} 4.0',
    ):
        assert line in text
    assert "evil" not in text
    assert text.count("penstock_push_window{") <= LABEL_VALUES_MAX + 1
    assert json.dumps(posted().as_dict())
