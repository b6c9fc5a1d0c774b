"""`penstock alerts`: what people type, and what they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.alerts.channels.delivery import NoticeRefused
from penstock.alerts.sender import AlertSender
from penstock.db.sqlite.store import SqliteStore
from tests.alerts.kit import SLACK, Recorder, declared, open_alert
from tests.kits.shell import Shell


@contextmanager
def running(shell: Shell, got: Recorder) -> Iterator[AlertSender]:
    """Yield a sender on the database of the shell."""
    store = SqliteStore(shell.path)
    try:
        yield AlertSender(
            store, declared({"chat": SLACK}), got, jitter=lambda: 1.0, is_threaded=False, group_us=0
        )
    finally:
        store.close()


@pytest.fixture
def alert_id(shell: Shell) -> str:
    """An open alert."""
    store = SqliteStore(shell.path)
    detail = {"fix": "penstock status", "values": {"n": 3}, "threshold": "at least 2"}
    made = open_alert(store, detail=detail)
    store.close()
    return made


def test_acknowledge_and_resolve(shell: Shell, alert_id: str) -> None:
    """Ids or filters select alerts; a dry run changes nothing."""
    assert f"{alert_id}  → penstock status" in shell.ok("alerts", "list")
    shown = shell.ok("alerts", "show", alert_id)
    assert "n 3" in shown
    assert "at least 2" in shown
    dry = shell.json("alerts", "ack", "--rule", "drill", "--dry-run")
    assert dry["result"]["changed"] == 1
    assert len(shell.json("alerts", "list")["items"]) == 1
    assert "1 alert acknowledged" in shell.ok("alerts", "ack", alert_id, "--note", "mine")
    assert "mine" in shell.ok("alerts", "show", alert_id)
    assert "No open alerts" in shell.ok("alerts", "list")
    assert "0 alerts resolved" in shell.ok("alerts", "resolve", "--rule", "other", "--yes")
    assert "1 alert resolved" in shell.ok("alerts", "resolve", alert_id)
    assert "[resolved]" in shell.ok("alerts", "list", "--state", "resolved")


def test_silence(shell: Shell, alert_id: str) -> None:
    """A silence says what it matches and how to end it."""
    made = shell.json("alerts", "silence", alert_id, "--for", "2h", "--reason", "release")
    assert made["alerts"] == 1
    assert "[silenced]" in shell.ok("alerts", "list", "--state", "silenced")
    assert "release" in shell.ok("alerts", "silences")
    assert "has ended" in shell.ok("alerts", "unsilence", made["silence_id"])
    assert "No silences" in shell.ok("alerts", "silences")
    assert shell("alerts", "unsilence", made["silence_id"]).code == 4


def test_channels(shell: Shell, alert_id: str) -> None:
    """Channels show what waits and why; a test message reports its result."""
    assert "No channels" in shell.ok("alerts", "channels")
    got = Recorder()
    with running(shell, got) as sender:
        got.down["chat"] = NoticeRefused("slack: HTTP 404")
        sender.run_once()
        (channel,) = shell.json("alerts", "channels")["items"]
        assert (channel["state"], channel["waiting"]) == ("failing", 1)
        assert channel["last_error"] == "slack: HTTP 404"
        assert "slack: HTTP 404" in shell.ok("alerts", "channels")
        queued = shell.json("alerts", "test", "chat", "--no-wait")
        sender.run_once()
        (dead,) = shell.json("alerts", "notices", "--state", "dead")["items"]
        assert (dead["notice_id"], dead["change"]) == (queued["notice_id"], "test")
        assert "0 notices will be sent again" in shell.ok("alerts", "resend", "chat")
    assert shell.json("alerts", "show", alert_id)["notified"][0]["state"] == "waiting"
    assert "dead_letters" in shell.ok("alerts", "rules")
