"""Helpers: settings, alerts, and a recorder in place of channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.alerts.channels.delivery import NoticeRefused
from penstock.alerts.declared import AlertSettings, ChannelSpec, parse_alerts
from penstock.alerts.rows import LeasedNotice
from penstock.alerts.sender import AlertSender
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.core.clock import MINUTE, SECOND
from penstock.core.ids import encode
from penstock.db.store import Transactions
from penstock.testing.clock import VirtualClock

SLACK: Mapping[str, Any] = {"kind": "slack", "url_secret": "slack"}
MAIL: Mapping[str, Any] = {"kind": "email", "host": "m", "from": "p@x.io", "to": ["ops@x.io"]}
PAGER: Mapping[str, Any] = {"kind": "pagerduty", "token_secret": "pager"}


class Sent(NamedTuple):
    """A notice that a channel accepted."""

    channel: str
    kind: str
    notice_id: int
    alerts: tuple[int, ...]


class Recorder:
    """Stands in for channels: records notices, or refuses those of channels that are down."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.down: dict[str, NoticeRefused] = {}
        self.on_sent: Callable[[], None] = lambda: None

    def __call__(self, spec: ChannelSpec, notice: LeasedNotice) -> None:
        """Accept a notice."""
        assert spec.kind
        if notice.channel in self.down:
            raise self.down[notice.channel]
        alerts = tuple(item.alert_id for item in notice.items)
        self.sent.append(Sent(notice.channel, notice.kind, notice.notice_id, alerts))
        self.on_sent()

    def names(self) -> set[str]:
        """Return the channels that accepted something."""
        return {one.channel for one in self.sent}

    def kinds(self, channel: str) -> list[str]:
        """Return the changes that a channel reported, in order."""
        return [one.kind for one in self.sent if one.channel == channel]


def declared(channels: Mapping[str, Any], **more: Any) -> AlertSettings:
    """Return settings with these channels."""
    return parse_alerts({"channels": channels, **more})


def sender(store: Transactions, settings: AlertSettings, deliver: Recorder) -> AlertSender:
    """Return a sender that works in the calling thread."""
    return AlertSender(store, settings, deliver, jitter=lambda: 1.0, is_threaded=False)


def alert(key: str = "k", **fields: Any) -> NewAlert:
    """Return an alert about the system."""
    values = {
        "rule": "drill", "dedupe_key": key, "severity": "HIGH", "subject_kind": "system",
        "subject": 0, "message": f"{key} is broken",
    }  # fmt: skip
    return NewAlert(**{**values, **fields})


def open_alert(store: Transactions, key: str = "k", **fields: Any) -> str:
    """Open an alert; return its id."""
    return encode("alert", store.write(lambda tx: alert_open(tx, alert(key, **fields))))


def end_alert(store: Transactions, key: str = "k") -> None:
    """Resolve an alert as its detector does."""
    store.write(lambda tx: alert_resolve(tx, key, "detector"))


def passes(one: AlertSender, clock: VirtualClock, seconds: int, step: int = 10) -> None:
    """Run a sender for a time."""
    for _ in range(0, seconds, step):
        clock.advance(step * SECOND)
        one.run_once()


def set_back(clock: VirtualClock, us: int) -> None:
    """Correct a clock that was fast, as a time server does."""
    clock._now -= us


def settle(one: AlertSender, clock: VirtualClock) -> None:
    """Let a sender report everything that changed."""
    clock.advance(MINUTE)
    one.run_once()
