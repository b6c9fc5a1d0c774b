"""Hooks: how a lower subject calls a higher one without importing it.

A subject declares a hook; `penstock.wiring` connects a function of a higher subject to it. The
connections are made when the first hook is called, so that a program that only reads does not load
the higher subjects. A hook that nothing is connected to raises when it is called: a missing
connection would otherwise silently lose a completion or an alert.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


_pending: list[Callable[[], None]] = []
_lock = threading.Lock()


def connect_on_first_use(connect: Callable[[], None]) -> None:
    """Call `connect`, which connects all hooks, before any hook is called."""
    _pending.append(connect)


class Hook(Generic[P]):
    """Functions that are called in the order in which they were connected."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._functions: list[Callable[P, object]] = []

    def connect(self, function: Callable[P, object]) -> None:
        """Add a function; connecting it again changes nothing."""
        if function not in self._functions:
            self._functions.append(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every connected function."""
        if _pending:
            connect_pending()
        _check_connected(self._name, bool(self._functions))
        for function in self._functions:
            function(*args, **kwargs)


class Provider(Generic[P, R]):
    """One function of a higher subject that returns a value."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._function: Callable[P, R] | None = None

    def connect(self, function: Callable[P, R]) -> None:
        """Set the function to call."""
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the connected function and return its result."""
        if _pending:
            connect_pending()
        _check_connected(self._name, self._function is not None)
        assert self._function is not None
        return self._function(*args, **kwargs)


def connect_pending() -> None:
    """Make all connections; other threads wait, so that no call sees only some of them.

    A process that will call hooks calls this at startup, because it takes a tenth of a second.
    """
    with _lock:
        while _pending:
            _pending[0]()
            del _pending[0]


def _check_connected(name: str, is_connected: bool) -> None:
    if not is_connected:
        raise RuntimeError(f"hook {name} is not connected: import penstock.client first")
