"""Wake-ups between processes by NOTIFY and LISTEN, each on its own connection.

Hints are never sent inside a transaction, and need not survive a crash. A lost LISTEN connection is
replaced until the store closes; hints that were missed meanwhile cost one poll interval.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable

import psycopg

from penstock.core.clock import SystemClock
from penstock.core.ids import new_boot_id
from penstock.db.notifier import HintSender, HubWaiter, WakeHub
from penstock.db.postgres.connector import Connector
from penstock.db.postgres.pipeline import PostgresSession

log = logging.getLogger(__name__)

CHANNEL = "penstock"
NOTIFY = "SELECT pg_notify(%(channel)s, %(note)s)"
RETRY_SECONDS = 0.2
QUICK = {"synchronous_commit": "off"}


class PostgresWakes:
    """Wakes waiters of this process and, through the server, those of other processes."""

    def __init__(self, connector: Connector, listening: Connector) -> None:
        """`listening` opens the connection that receives hints; it must keep its session."""
        self._connector = connector
        self._listening = listening
        self._id = new_boot_id()
        self._hub = WakeHub()
        self._sender = HintSender(self._send, "penstock-notify")
        self._sending: PostgresSession | None = None
        self._listener: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def receives(self) -> bool:
        """Whether hints of other processes arrive."""
        return self._listening.keeps_session

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes."""
        names = list(channels)
        self._sender.send(names, has_local_waiter=self._hub.notify(names))

    def listen(self, channels: Iterable[str]) -> HubWaiter:
        """Return a waiter for the channels."""
        with self._lock:
            if self._listener is None and self.receives:
                self._listener = threading.Thread(
                    target=self._listen_loop, name="penstock-listen", daemon=True
                )
                self._listener.start()
        return self._hub.listen(channels)

    def close(self) -> None:
        """Close both connections; idempotent."""
        self._closed = True
        self._sender.close()
        if self._listener is not None:
            self._listener.join(timeout=5)
        if self._sending is not None:
            with contextlib.suppress(psycopg.Error):
                self._sending.close()

    def _send(self, channels: list[str]) -> None:
        """Send one NOTIFY for many hints, on the sender's own thread and connection."""
        try:
            if self._sending is None:
                self._sending = self._connector.open("notify", settings=QUICK)
            note = {"channel": CHANNEL, "note": ",".join([self._id, *channels])}
            wire = self._sending.statement_pipeline
            wire.send([wire.prepared("notify", NOTIFY, note)])
        except psycopg.Error:
            if self._sending is not None:
                with contextlib.suppress(psycopg.Error):
                    self._sending.close()
            self._sending = None
            raise

    def _listen_loop(self) -> None:
        """Pass hints from other processes to local waiters; reconnect until it is closed."""
        while not self._closed:
            try:
                with self._listening.open("listen") as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not self._closed:
                        for note in connection.notifies(timeout=0.5, stop_after=1):
                            sender, *channels = note.payload.split(",")
                            if sender != self._id:
                                self._hub.notify(channels)
            except psycopg.Error as error:
                log.debug("lost the LISTEN connection, reconnecting: %s", error)
                SystemClock().sleep(RETRY_SECONDS)
