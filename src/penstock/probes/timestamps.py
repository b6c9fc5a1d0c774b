"""Parsing times and dates from warehouses into microseconds and ISO dates.

Adapters return the newest time as text, the one form that all of them support: an ISO 8601 time
(UTC without an offset), a date, or a number since the epoch.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from penstock.core.clock import Micros, from_datetime
from penstock.core.errors import short_repr
from penstock.probes.protocol import ProbeFailed

_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,9})?", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ]|\Z)", re.ASCII)
# Below the first bound a number counts seconds (until the year 5138), below the second
# milliseconds, above it microseconds.
_SECONDS_BELOW, _MILLIS_BELOW = 1e11, 1e14


def parse_timestamp(text: str | None, column: str) -> Micros | None:
    """Parse a time from a warehouse; None stays None."""
    if text is None:
        return None
    value = str(text).strip()
    if _NUMBER.fullmatch(value):
        number = float(value)
        if number < _SECONDS_BELOW:
            return round(number * 1_000_000)
        return round(number * 1_000) if number < _MILLIS_BELOW else int(number)
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        raise ProbeFailed(f"{column} holds {short_repr(value)}, which is not a time") from None
    return from_datetime(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC))


def days_before(partition: str, days: int) -> list[str]:
    """Return the ISO dates of the days before a partition that begins with a date, oldest first."""
    try:
        if not _DAY.match(partition):
            raise ValueError(partition)
        last = date.fromisoformat(partition[:10])
        return [(last - timedelta(days=back)).isoformat() for back in range(days, 0, -1)]
    except (ValueError, OverflowError):
        raise ProbeFailed(
            f"the days before partition {short_repr(partition)} cannot be counted; "
            'expected a date such as "2025-12-31"'
        ) from None
