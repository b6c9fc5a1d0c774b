"""The dashboard of a demo: served while the day is simulated, over its database and clock."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import click

from penstock.core.clock import DAY, SystemClock
from penstock.core.errors import SettingsError

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings
    from penstock.audit.telemetry import Events
    from penstock.client import Client

PORT: Final = 8080
"""Port tried first, so that the address is the usual one."""
STOPS: Final = (signal.SIGINT, signal.SIGTERM)
STEP_SECONDS: Final = 1.0
"""How often the services run while the dashboard stays open, and how far time advances."""
SESSION_US: Final = 3_650 * DAY
"""Lifetime of a session; it must outlast the demo, in which half a day passes in half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Options of the demo's dashboard: whether it is served, and whether it stays open."""

    is_served: bool
    is_staying: bool
    say: Callable[[str], None] = click.echo
    _ways_in: list[str] = field(default_factory=list, init=False)
    """Address and key of the dashboard while it is served."""

    @contextlib.contextmanager
    def watching(self, client: Client, settings: Settings, events: Events) -> Iterator[None]:
        """Serve the dashboard while the block runs; print its address and key."""
        if not self.is_served:
            yield
            return
        # Imported here because it loads the web stack.
        from penstock.assembly.api import build_api

        key = client.keys.create("demo", "operator").key
        client.logins.lifetime_us = SESSION_US
        try:
            server = build_api(client, replace(settings, api_port=PORT), events)
        except SettingsError:
            server = build_api(client, replace(settings, api_port=0), events)
            self.say(f"Port {PORT} is taken, so the dashboard uses another.")
        server.start()
        self._ways_in.append(f"{server.url}/   log in with {key}")
        self.say(f"Dashboard: {self._ways_in[-1]}")
        try:
            yield
        finally:
            self._ways_in.clear()
            server.stop()

    def stay(self, go_on: Callable[[float], None] = lambda _: None) -> None:
        """Wait for Ctrl-C or a termination signal if the dashboard stays open; `go_on` advances the
        time.
        """
        if not self.is_served or not self.is_staying:
            return
        stopped = threading.Event()
        before = {one: signal.signal(one, lambda *_: stopped.set()) for one in STOPS}
        for way_in in self._ways_in:  # the first one is above the report, out of sight
            self.say(f"The dashboard stays open until Ctrl-C: {way_in}")
        try:
            while not SystemClock().wait(stopped, STEP_SECONDS):
                go_on(STEP_SECONDS)
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
