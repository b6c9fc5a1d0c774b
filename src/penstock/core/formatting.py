"""Formatting of optional ids, times, JSON text and percentages."""

from __future__ import annotations

import json
from typing import Any

from penstock.core.ids import encode


def id_or_none(kind: str, n: int | None) -> str | None:
    """Encode a public id; None stays None."""
    return None if n is None else encode(kind, n)


def parsed(text: str | None) -> Any:
    """Parse stored JSON; return the text itself if it is not valid JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def format_percent(value: float) -> str:
    """Format a percentage, rounded down to one decimal place: "97.5 %", "100 %"."""
    shown = int(value * 10 + 1e-9) / 10
    return f"{shown:.1f} %" if shown % 1 else f"{shown:.0f} %"
