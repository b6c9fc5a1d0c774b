"""Results of costly reads, shared for some seconds by visits with the same view."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar, cast

from penstock.core.clock import Clock

T = TypeVar("T")
KEPT_MAX: Final = 1_000


class SharedReads:
    """Keeps the latest results; visits that need one at the same time may each read it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def get(self, key: Hashable, seconds: float, read: Callable[[], T]) -> T:
        """Return a result that is at most `seconds` old.

        key: all that the result depends on, including the customer of the caller.
        """
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and now - kept[0] < seconds:
            return cast("T", kept[1])
        made = read()
        with self._lock:
            self._kept[key] = (now, made)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return made
