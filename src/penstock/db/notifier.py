"""Wake-ups: hints to a waiting service that there may be work.

A lost hint costs at most one poll interval and never loses work, because the tables hold the state.
`WakeHub` wakes the waiters of this process. `HintSender` sends hints to other processes on its own
thread, at most 200 times a second, so that no transaction waits for a notification. If a local
waiter was woken, the hint reaches other processes slightly later: the local waiter can take the
work first, without competing with every other process for the CPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger(__name__)

SEND_GAP_S = 0.005
LOCAL_DELAY_S = 0.003
"""Extra delay before other processes are notified when a local waiter was woken."""


def after_commit(calls: Iterable[Callable[[], None]]) -> None:
    """Run the callbacks of a committed transaction. Exceptions are logged; the commit stands."""
    for call in calls:
        try:
            call()
        except Exception:
            log.exception("an after-commit callback failed; the transaction is committed")


class HubWaiter:
    """A waiter for hints on any of its channels."""

    def __init__(self, hub: WakeHub, channels: frozenset[str]) -> None:
        self.channels = channels
        self._hub = hub
        self._event = threading.Event()
        self._call: Callable[[], None] | None = None
        self.is_waiting = False

    def call_on_hint(self, call: Callable[[], None]) -> None:
        """Call a function on each hint, on the thread that delivers it, instead of waiting.

        The function must return immediately and must not raise.
        """
        self._call = call
        self.is_waiting = True

    def wait(self, seconds: float) -> bool:
        """Wait for a hint, at most `seconds`. Return True if one arrived."""
        self.is_waiting = True
        woken = self._event.wait(seconds)
        self.is_waiting = False
        self._event.clear()
        return woken

    def interrupt(self) -> None:
        """Wake this waiter now, from any thread."""
        if self._call is not None:
            self._call()
        self._event.set()

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._hub.forget(self)


class WakeHub:
    """All waiters of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: set[HubWaiter] = set()

    def listen(self, channels: Iterable[str]) -> HubWaiter:
        """Register and return a new waiter for the channels."""
        waiter = HubWaiter(self, frozenset(channels))
        with self._lock:
            self._waiters.add(waiter)
        return waiter

    def forget(self, waiter: HubWaiter) -> None:
        """Remove a waiter; idempotent."""
        with self._lock:
            self._waiters.discard(waiter)

    def notify(self, channels: Iterable[str]) -> bool:
        """Wake this process's waiters. Return True if every channel had a waiter in `wait`."""
        wanted = frozenset(channels)
        with self._lock:
            woken = [w for w in self._waiters if w.channels & wanted]
        waiting = frozenset[str]().union(*(w.channels for w in woken if w.is_waiting))
        for waiter in woken:
            waiter.interrupt()
        return wanted <= waiting


class HintSender:
    """Sends hints to other processes from one thread: the first immediately, then every 5 ms."""

    def __init__(self, send: Callable[[list[str]], None], name: str) -> None:
        self._send = send
        self._name = name
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._asked = threading.Event()
        self._hurry = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, channels: Iterable[str], *, has_local_waiter: bool = False) -> None:
        """Queue hints and return immediately.

        `has_local_waiter`: a waiter of this process was already woken for them.
        """
        if not has_local_waiter:
            self._hurry.set()
        with self._lock:
            self._pending.update(channels)
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
        self._asked.set()

    def close(self) -> None:
        """Stop the thread; idempotent."""
        self._stopped.set()
        self._hurry.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        while not self._stopped.is_set():
            self._asked.wait()
            self._hurry.wait(LOCAL_DELAY_S)
            self._hurry.clear()
            self._asked.clear()
            with self._lock:
                channels, self._pending = sorted(self._pending), set()
            if channels:
                try:
                    self._send(channels)
                except Exception as error:
                    log.debug("wake-up not sent: %s", error)
                self._stopped.wait(SEND_GAP_S)


class UnsafeFolder(Exception):
    """The folder of the sockets is not private to this user, so it is not used."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"other processes are not notified immediately: {folder} is a link, belongs to another "
            "user or is open to others. Remove it, or set TMPDIR to a private folder."
        )


def _make_private(folder: Path) -> None:
    """Create a folder, or accept one that only this user can use; raise UnsafeFolder."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafeFolder(folder)


def _remove_socket(path: Path) -> None:
    """Remove a socket; leave any other file unchanged."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


class SocketNotifier:
    """Sends hints to other processes that have the same SQLite file open, as Unix datagrams.

    Each process binds a socket in a private folder named after the file. A hint goes to every
    socket in that folder; sockets without a listener are removed.
    """

    def __init__(self, database: Path, on_hint: Callable[[list[str]], object]) -> None:
        digest = hashlib.sha256(str(database.resolve()).encode()).hexdigest()[:16]
        self._folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}-{digest}"
        _make_private(self._folder)
        self._path = self._folder / f"{os.getpid()}-{id(self):x}"
        self._on_hint = on_hint
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            _remove_socket(self._path)
            self._socket.bind(str(self._path))
        except OSError:
            self._socket.close()
            raise
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="penstock-hints", daemon=True)
        self._thread.start()

    def notify(self, channels: list[str]) -> None:
        """Send the hint to all other processes."""
        message = ",".join(channels).encode()
        for path in self._folder.iterdir():
            if path == self._path:
                continue
            try:
                self._socket.sendto(message, socket.MSG_DONTWAIT, str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                _remove_socket(path)
            except OSError as error:
                log.debug("wake-up to %s not sent: %s", path.name, error)

    def close(self) -> None:
        """Stop listening and remove the socket; idempotent."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.sendto(b"", str(self._path))
        self._thread.join(timeout=5)
        self._socket.close()
        with contextlib.suppress(OSError):
            _remove_socket(self._path)
            self._folder.rmdir()

    def _loop(self) -> None:
        while not self._closed:
            try:
                message = self._socket.recv(4096)
            except OSError:
                return
            if message and not self._closed:
                self._on_hint(message.decode().split(","))
