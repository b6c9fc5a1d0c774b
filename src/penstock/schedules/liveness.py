"""Whether a scheduler process is alive, by the last ticks of its services.

Schedulers hold no session. Each records, in intervals of `TICKS_EVERY`, which of its services have
made a step, so a process that ended without a word is known by their silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.core.clock import SECOND, Micros

TICKS_EVERY: Final = 10 * SECOND
SILENT: Final = 3 * TICKS_EVERY
"""How long all services may be silent before no scheduler counts as alive."""
NO_SCHEDULER: Final = "no scheduler is running"
START: Final = "penstock scheduler"


def is_scheduler_alive(ticked: Iterable[Micros], now: Micros) -> bool:
    """Return whether any service of a scheduler has ticked lately.

    ticked: the last tick of each service. A single service that fails stays silent on its own.
    """
    return any(now - at <= SILENT for at in ticked)
