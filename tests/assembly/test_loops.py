"""The loops of processes, as they are built from settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.assembly.process import (
    build_dispatcher_loops,
    build_scheduler_loops,
    build_watch_loops,
)
from penstock.assembly.settings import Settings, load
from penstock.audit.telemetry import Event, Events, ServiceError, ServiceStopped
from penstock.db.sqlite.store import SqliteStore
from penstock.services.supervisor import Draining, Loop

SECONDS = 60.0
ALERTS = {
    "channels": {"chat": {"kind": "slack", "url_secret": "slack"}},
    "routes": [{"channels": ["chat"]}],
}
BRIDGES = {"main": {"url": "nats://127.0.0.1", "send": ["orders"], "receive": ["reports"]}}

Build = Callable[[SqliteStore, Settings, Events], list[Loop]]


def schedulers(store: SqliteStore, settings: Settings, events: Events) -> list[Loop]:
    """Build the loops of a scheduler."""
    return build_scheduler_loops(store, settings, events)


@pytest.mark.parametrize(
    ("build", "draining"),
    [
        (schedulers, {"pusher", "binder", "alert-sender", "bridge main"}),
        (build_dispatcher_loops, {"dispatcher"}),
        (build_watch_loops, {"alert-sender"}),
    ],
)
def test_services_drain(build: Build, draining: set[str], tmp_path: Path) -> None:
    """Every service with work on other threads ends it when its loop stops."""
    events, seen = Events(), list[Event]()
    events.subscribe(seen.append)
    overrides: dict[str, Any] = {"alerts": ALERTS, "bridges": BRIDGES, "drain": "3s"}
    store = SqliteStore(tmp_path / "test.db")
    store.migrate()
    try:
        loops = build(store, load({}, overrides=overrides), events)
        found = [one for one in loops if isinstance(one._service, Draining)]
        assert {one._service.name for one in found} == draining
        assert {one._drain_seconds for one in loops} == {3.0}
        for loop in found:
            loop._stopping.set()  # no step: the loop drains at once
            loop.start()
            assert loop.stop(SECONDS)
    finally:
        store.close()
    assert [one for one in seen if isinstance(one, ServiceError)] == []
    assert len([one for one in seen if isinstance(one, ServiceStopped)]) == len(found)
