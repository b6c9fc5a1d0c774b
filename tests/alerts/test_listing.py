"""Lists of alerts: their order, over all pages."""

from __future__ import annotations

from penstock.alerts.client.alerts import AlertOrder
from penstock.alerts.records import AlertSeverity
from tests.alerts.kit import open_alert
from tests.kits.client_harness import Harness

OPENED = ("INFO", "CRITICAL", "MEDIUM", "HIGH", "CRITICAL", "INFO", "HIGH", "MEDIUM")


def listed(
    harness: Harness, sort: AlertOrder, limit: int, severity: AlertSeverity | None = None
) -> list[tuple[str, str]]:
    """Return severity and message of all alerts, read page by page."""
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = harness.client.alerts.list(sort=sort, limit=limit, cursor=cursor, severity=severity)
        assert len(page.items) <= limit
        found += [(one.severity, one.message.split()[0]) for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_most_severe_first(harness: Harness) -> None:
    """Pages of any size have the worst first and the newest first of equal ones, each once."""
    for number, severity in enumerate(OPENED):
        open_alert(harness.store, str(number), severity=severity)
    worst = [("CRITICAL", "4"), ("CRITICAL", "1"), ("HIGH", "6"), ("HIGH", "3"),
             ("MEDIUM", "7"), ("MEDIUM", "2"), ("INFO", "5"), ("INFO", "0")]  # fmt: skip
    for limit in range(1, 10):
        assert listed(harness, "severity", limit) == worst
        assert listed(harness, "severity", limit, severity="HIGH") == worst[2:4]
        newest = [message for _, message in listed(harness, "newest", limit)]
        assert newest == [str(number) for number in range(7, -1, -1)]
