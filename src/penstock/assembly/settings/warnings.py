"""Settings that are valid but probably mistakes, for `penstock doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings


def settings_warnings(settings: Settings) -> list[str]:
    """List combinations that work but are probably mistakes."""
    found = []
    if settings.session_beat * 3 > settings.session_lease:
        found.append(
            "session_beat is more than a third of session_lease: two missed heartbeats end the "
            "session"
        )
    if settings.database_url.startswith("postgres") and settings.pool_size < 4:
        found.append("pool_size below 4 makes services wait for each other's connections")
    return found
