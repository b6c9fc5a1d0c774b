"""Rows of changes, notices and channels as plain records."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.clock import MINUTE

UNDECLARED_US: Final = 10 * MINUTE
"""Time after which a channel that no process has declared again counts as undeclared."""


class AlertChange(NamedTuple):
    """A change of an alert that has not been reported."""

    change_id: int
    alert_id: int
    kind: str
    severity: str
    at: int


class NoticeItem(NamedTuple):
    """An alert as a notice reports it."""

    alert_id: int
    severity: str
    message: str
    at: int
    rule: str
    customer_id: str | None
    pipeline: str | None
    subject_kind: str
    subject: int
    detail: str
    opened_at: int
    acknowledged_by: str | None
    note: str | None
    closed_by: str | None


class NoticeRow(NamedTuple):
    """A notice as listed."""

    notice_id: int
    channel: str
    origin: str | None
    kind: str
    state: str
    attempts: int
    alerts: int
    created_at: int
    ended_at: int | None
    last_error: str | None


class LeasedNotice(NamedTuple):
    """A notice that this process sends now."""

    channel: str
    token: int
    failures: int
    """Failures of the channel in a row before this attempt."""
    notice_id: int
    origin: str | None
    kind: str
    attempts: int
    created_at: int
    now: int
    items: tuple[NoticeItem, ...]


class ChannelRow(NamedTuple):
    """A channel as listed."""

    name: str
    kind: str
    target: str
    routes: str
    fallback: str | None
    declared_at: int
    last_sent_at: int | None
    last_error: str | None
    last_error_at: int | None
    failing_since: int | None
    failures: int
    next_try_at: int
    waiting: int
    dead: int
    now: int


class ChannelHealth(NamedTuple):
    """Whether a channel fails, and since when."""

    failures: int
    failing_since: int | None


class SenderWork(NamedTuple):
    """Pending work of the alert sender."""

    now: int
    has_changes: bool
    has_silences: bool
    has_notices: bool
