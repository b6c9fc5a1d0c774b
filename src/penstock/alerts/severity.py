"""Severities of alerts, in order."""

from __future__ import annotations

from typing import Final

SEVERITIES: Final = ("INFO", "MEDIUM", "HIGH", "CRITICAL")


def rank(severity: str) -> int:
    """Return the position of a severity; a higher one is worse."""
    return SEVERITIES.index(severity)
