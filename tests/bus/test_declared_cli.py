"""`penstock subscriptions diff` and `apply`, on the embedded bus and on NATS; `doctor`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.nats import NatsServer
from tests.kits.shell import Shell

MODULE = """
from penstock.bus import SubscriptionSpec, TopicSpec

TOPICS = [TopicSpec(name="rosters"), TopicSpec(name="rosters.dlq")]
READER = SubscriptionSpec(
    name="reader", topic="rosters", dead_letter_topic="rosters.dlq", max_attempts={attempts}
)
"""
NUMBERS = itertools.count(1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of its own, for the prefix `penstock`."""
    made = NatsServer(tmp_path / "nats").start()
    yield made
    made.kill()


def declare(tmp_path: Path, attempts: int) -> str:
    """Write the declarations to a file and return its path."""
    path = tmp_path / f"messaging_{next(NUMBERS)}.py"
    path.write_text(MODULE.format(attempts=attempts))
    return str(path)


@pytest.mark.parametrize("kind", ["embedded", "nats"])
def test_drift_is_shown_and_fixed(
    shell: Shell, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Missing, then applied, then changed in one setting, then applied again."""
    more: tuple[str, ...] = ()
    if kind == "nats":
        more = ("--transport", request.getfixturevalue("server").url)
    first = declare(tmp_path, 5)
    missing = shell("subscriptions", "diff", first, *more)
    assert missing.code == 1
    assert "topic rosters: missing" in missing.out
    assert "subscription reader: missing" in missing.out
    shell.ok("subscriptions", "apply", first, *more, "--yes")
    assert "matches the declarations" in shell("subscriptions", "diff", first, *more).out
    second = declare(tmp_path, 9)
    changed = shell("subscriptions", "diff", second, *more, "--json")
    assert changed.code == 1
    found = changed.json()["items"]
    assert [(one["name"], one["field"], one["actual"]) for one in found] == [
        ("reader", "max_attempts", "5")
    ]
    shell.ok("subscriptions", "apply", second, *more, "--yes")
    assert shell("subscriptions", "diff", second, *more, "--json").json()["items"] == []


def test_nothing_declared(shell: Shell) -> None:
    """Without declarations the command says what to do."""
    refused = shell("subscriptions", "diff")
    assert refused.code == 2
    assert "declarations" in refused.err


def test_doctor_names_drift(
    shell: Shell, tmp_path: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` compares the declarations and the bridges with their brokers."""
    monkeypatch.setenv("PENSTOCK_DECLARATIONS", declare(tmp_path, 5))
    monkeypatch.setenv("PENSTOCK_TRANSPORT_URL", server.url)
    bridges = f'{{"main": {{"url": "{server.url}", "receive": ["reports"]}}}}'
    monkeypatch.setenv("PENSTOCK_BRIDGES", bridges)
    checks = shell("doctor", "--json").json()["checks"]
    (text,) = [one["says"] for one in checks if one["check"] == "transports"]
    assert "declarations: topic rosters: missing" in text
    assert "bridge main: subscription bridge.main.reports: missing" in text
