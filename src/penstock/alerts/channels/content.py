"""The content of a notice, the same for every kind of channel.

Pure. Messages of alerts may quote errors of users' systems: they are masked like logs and put on
one line, and every channel escapes what its receiver would interpret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.alerts.rows import LeasedNotice, NoticeItem
from penstock.alerts.severity import SEVERITIES, rank
from penstock.alerts.subjects import command_of, subject_id
from penstock.core.clock import Micros, format_duration, iso
from penstock.core.formatting import parsed
from penstock.core.ids import encode
from penstock.core.redact import redact, redact_text

SHOWN_MAX: Final = 20
"""Maximum number of alerts that a message for people lists."""
TEXT_MAX: Final = 1_000
_WORDS: Final = {
    "opened": "fires",
    "escalated": "is now worse",
    "acknowledged": "is acknowledged",
    "resolved": "is resolved",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertText:
    """An alert as a notice shows it."""

    alert_id: str
    rule: str
    severity: str
    text: str
    customer: str | None
    pipeline: str | None
    command: str | None
    opened_at: Micros
    at: Micros
    by: str | None
    note: str | None
    values: dict[str, Any]
    threshold: str | None
    is_over: bool
    """Whether the alert is resolved, also if the notice is about an earlier change."""

    def sentence(self) -> str:
        """Return the alert in one sentence, with its customer."""
        return self.text if self.customer is None else f"{self.customer}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeContent:
    """The unformatted content of a notice: the change, a title and the alerts."""

    notice_id: str
    change: str
    title: str
    severity: str
    at: Micros
    alerts: tuple[AlertText, ...]

    @property
    def is_over(self) -> bool:
        """Whether its alerts are resolved, also if it is about an earlier change."""
        over = bool(self.alerts) and all(one.is_over for one in self.alerts)
        return over or self.change == "resolved"

    def lines(self) -> list[str]:
        """Return the human-readable lines below the title."""
        found = []
        for one in self.alerts[:SHOWN_MAX]:
            found.append(f"{one.severity} {one.sentence()}")
            if self.change in ("acknowledged", "resolved"):
                by = f" by {one.by}" if one.by else ""
                after = format_duration(max(0, one.at - one.opened_at))
                note = f": {one.note}" if one.note else ""
                found.append(f"  {self.change}{by} after {after}{note}")
            elif one.is_over:
                found.append("  resolved meanwhile")
            elif one.command is not None:
                found.append(f"  → {one.command}")
        if len(self.alerts) > SHOWN_MAX:
            found.append(f"… and {len(self.alerts) - SHOWN_MAX} more: penstock alerts list")
        return found


def content_of(notice: LeasedNotice) -> NoticeContent:
    """Return the content of a notice."""
    alerts = tuple(_alert(item, notice.kind) for item in notice.items)
    worst = max((one.severity for one in alerts), key=rank, default=SEVERITIES[0])
    return NoticeContent(
        notice_id=encode("notice", notice.notice_id),
        change=notice.kind,
        title=_title(notice, alerts),
        severity=worst,
        at=max((one.at for one in alerts), default=notice.created_at),
        alerts=alerts,
    )


def public_record(content: NoticeContent) -> dict[str, Any]:
    """Return the content as the JSON that webhooks get."""
    return {
        "type": f"alert.{content.change}",
        "timestamp": iso(content.at),
        "data": {
            "notice_id": content.notice_id,
            "title": content.title,
            "severity": content.severity,
            "alerts": [
                {
                    "alert_id": one.alert_id,
                    "rule": one.rule,
                    "severity": one.severity,
                    "message": one.text,
                    "customer_id": one.customer,
                    "pipeline_template": one.pipeline,
                    "values": one.values,
                    "threshold": one.threshold,
                    "command": one.command,
                    "opened_at": iso(one.opened_at),
                    "at": iso(one.at),
                    "by": one.by,
                    "note": one.note,
                }
                for one in content.alerts
            ],
        },
    }


def _alert(item: NoticeItem, change: str) -> AlertText:
    detail = redact(parsed(item.detail))
    by = {"acknowledged": item.acknowledged_by, "resolved": item.closed_by}.get(change)
    values = detail.get("values")
    command = command_of(item.subject_kind, subject_id(item.subject_kind, item.subject), detail)
    return AlertText(
        alert_id=encode("alert", item.alert_id),
        rule=item.rule,
        severity=item.severity,
        text=_line(redact_text(item.message))[:TEXT_MAX],
        customer=item.customer_id,
        pipeline=item.pipeline,
        command=None if command is None else _line(command),
        opened_at=item.opened_at,
        at=item.at,
        by=by,
        note=None if item.note is None else _line(redact_text(item.note)),
        values=values if isinstance(values, dict) else {},
        threshold=detail.get("threshold"),
        is_over=item.closed_by is not None,
    )


def _line(text: str) -> str:
    """Return a text on one line, so that it cannot imitate other lines of a notice."""
    return " ".join(text.split())


def _title(notice: LeasedNotice, alerts: Sequence[AlertText]) -> str:
    if notice.kind == "test":
        return f"Test message of channel {notice.channel}"
    if notice.kind == "recovered":
        return f"Channel {notice.channel} works again; its fallback sent its notices meanwhile"
    through = f" (channel {notice.origin} fails)" if notice.origin else ""
    if len(alerts) == 1:
        is_late = alerts[0].is_over and notice.kind in ("opened", "escalated")
        words = "fired and is resolved" if is_late else _WORDS[notice.kind]
        return f"{alerts[0].rule} {words}: {alerts[0].sentence()}{through}"
    rule = alerts[0].rule if alerts else ""
    return f"{len(alerts)} alerts of {rule}: each {_WORDS[notice.kind]}{through}"
