"""Hooks that run before a store closes, for work that is still pending above the store.

The limit broker, for example, buffers releases and abandoned tickets. Its hook runs while the store
can still be written to, so that none of them waits for a lease to expire.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from penstock.core.errors import PenstockError


class CloseHooks:
    """Hooks to run before the store closes, each once."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        """Register a hook."""
        self._calls.append(call)

    def run(self) -> None:
        """Run all hooks. Database errors are ignored."""
        while self._calls:
            with contextlib.suppress(PenstockError):
                self._calls.pop()()
