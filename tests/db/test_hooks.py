"""Hooks: order, missing connections, and connections that are made on the first call."""

from __future__ import annotations

import threading

import pytest

from penstock.db import hooks


@pytest.fixture
def nothing_pending(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Replace the pending connections by an empty list."""
    pending: list[object] = []
    monkeypatch.setattr(hooks, "_pending", pending)
    return pending


def test_order() -> None:
    """Functions are called in the order in which they were connected, each once."""
    called: list[str] = []
    hook: hooks.Hook[[str]] = hooks.Hook("test.hook")
    first, second = called.append, lambda text: called.append(text.upper())
    for function in (first, second, first):
        hook.connect(function)
    hook("a")
    assert called == ["a", "A"]


def test_without_a_connection(nothing_pending: list[object]) -> None:
    """A hook and a provider that nothing is connected to raise."""
    hook: hooks.Hook[[]] = hooks.Hook("test.hook")
    provider: hooks.Provider[[], int] = hooks.Provider("test.provider")
    assert nothing_pending == []
    for call in (hook, provider):
        with pytest.raises(RuntimeError, match="is not connected"):
            call()


def test_no_call_sees_some_of_the_connections(nothing_pending: list[object]) -> None:
    """A call in another thread waits until every connection is made."""
    hook: hooks.Hook[[list[str]]] = hooks.Hook("test.hook")
    half, go_on = threading.Event(), threading.Event()

    def connect() -> None:
        hook.connect(lambda seen: seen.append("first"))
        half.set()
        assert go_on.wait(60)
        hook.connect(lambda seen: seen.append("second"))

    hooks.connect_on_first_use(connect)
    assert len(nothing_pending) == 1
    seen: list[list[str]] = [[], []]
    threads = [threading.Thread(target=hook, args=(one,)) for one in seen]
    threads[0].start()
    assert half.wait(60)
    threads[1].start()
    assert seen == [[], []]
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert seen == [["first", "second"], ["first", "second"]]
    assert nothing_pending == []
