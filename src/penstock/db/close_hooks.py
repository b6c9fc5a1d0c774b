"""What others have left to write when a store is closed: slots given back, places in line left.

A room above the store that keeps something back for a moment (the broker of limits does) is called
while the store can still be written to, so that nothing of it waits for a lease to run out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from penstock.core.errors import PenstockError


class Farewells:
    """Calls to make before the end, each once."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        """Call it at the end."""
        self._calls.append(call)

    def say(self) -> None:
        """The end has come; a database that is away stops nobody."""
        while self._calls:
            with contextlib.suppress(PenstockError):
                self._calls.pop()()
