"""Maximum number of waiting long polls, in the process and per caller."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from penstock.server.overload.admission import overloaded
from penstock.server.problems import Refused


class PollQuota:
    """Counts waiting requests; a long poll keeps its connection, so their number is bounded."""

    def __init__(self, connections: int) -> None:
        """Leave a quarter of the connections to other requests, and half to other callers."""
        self._most = max(1, connections * 3 // 4)
        self._caller_max = max(1, connections // 2)
        self._count = 0
        self._by_caller: Counter[str] = Counter()

    @contextlib.contextmanager
    def waiting(self, caller: str) -> Iterator[None]:
        """Count a long poll of a caller; raise Refused if too many wait."""
        if self._by_caller[caller] >= self._caller_max:
            raise Refused(
                429,
                f"The API key has {self._caller_max:,} waiting requests: send fewer, each "
                "for more runs or messages.",
                headers={"Retry-After": "5"},
            )
        if self._count >= self._most:
            raise overloaded()
        self._count += 1
        self._by_caller[caller] += 1
        try:
            yield
        finally:
            self._count -= 1
            self._by_caller[caller] -= 1
            if not self._by_caller[caller]:
                del self._by_caller[caller]
