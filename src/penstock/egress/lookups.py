"""Name lookups on dedicated threads, limited per owner so that no owner can use all of them.

A lookup cannot be interrupted: it may hang far longer than the request that started it. Requests
for the same host share one, and an owner (a customer) may have a limited number in progress; beyond
it only that owner's requests fail.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

LOOKUPS_MAX: Final = 32
"""Maximum number of lookups in progress for one owner."""
ALL_LOOKUPS_MAX: Final = 512
"""Maximum number of lookups in progress for all owners, which limits threads."""

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""(host, port) → the addresses of a name; raises OSError when there are none."""


class TooManyLookupsError(Exception):
    """The owner has reached its maximum number of lookups in progress."""


class Lookups:
    """Lookups in progress; safe to use from any thread."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._started: dict[tuple[str, int], _Lookup] = {}
        self._owners: Counter[str] = Counter()

    def addresses(self, host: str, port: int, owner: str, seconds: float) -> list[str]:
        """Return the addresses of a name; raise TimeoutError if it does not resolve in time."""
        lookup = self._join(host, port, owner)
        if not lookup.ready.wait(seconds):
            raise TimeoutError
        if lookup.error is not None:
            raise lookup.error
        return lookup.addresses

    def _join(self, host: str, port: int, owner: str) -> _Lookup:
        """Return the lookup in progress for a host; start it if there is none."""
        with self._lock:
            known = self._started.get((host, port))
            if known is not None:
                return known
            if self._owners[owner] >= LOOKUPS_MAX or len(self._started) >= ALL_LOOKUPS_MAX:
                raise TooManyLookupsError
            made = self._started[host, port] = _Lookup()
            self._owners[owner] += 1
        threading.Thread(
            target=self._run, args=(made, host, port, owner), name="penstock-lookup", daemon=True
        ).start()
        return made

    def _run(self, lookup: _Lookup, host: str, port: int, owner: str) -> None:
        try:
            lookup.addresses = list(self._resolve(host, port))
        except Exception as error:  # a custom resolver may raise any error
            lookup.error = error
        finally:
            with self._lock:
                del self._started[host, port]
                self._owners[owner] -= 1
                if not self._owners[owner]:
                    del self._owners[owner]
            lookup.ready.set()


class _Lookup:
    """Result of a lookup."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.addresses: list[str] = []
        self.error: Exception | None = None
