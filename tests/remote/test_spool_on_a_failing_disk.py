"""The spool keeps every accepted event, and accepts none it cannot keep, while its disk fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.core.errors import Conflict, NotFound
from penstock.remote import spool as module
from penstock.remote.spool import Spool, SpooledEvent, rejected_events, waiting_events

FULL = OSError(errno.ENOSPC, "No space left on device")
LOST = OSError(errno.EIO, "Input/output error")


def event(n: int) -> SpooledEvent:
    """Build an event."""
    return SpooledEvent(event_id=f"e{n}", kind="publish", spooled_at=n, arguments={"n": n})


class Disk:
    """The calls of `os` that the spool writes with, of which a test lets some fail."""

    def __init__(self) -> None:
        self.space: int | None = None
        self.fails: set[str] = set()

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def write(self, handle: int, text: bytes) -> int:
        """Write what fits; raise when nothing does."""
        if self.space is None:
            return os.write(handle, text)
        if self.space == 0:
            raise FULL
        written = os.write(handle, text[: self.space])
        self.space -= written
        return written

    def fsync(self, handle: int) -> None:
        """Sync, or lose what was written."""
        self._check("fsync")
        os.fsync(handle)

    def ftruncate(self, handle: int, size: int) -> None:
        """Cut a file."""
        self._check("ftruncate")
        os.ftruncate(handle, size)

    def _check(self, name: str) -> None:
        if name in self.fails:
            raise LOST


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of every spool of the test."""
    made = Disk()
    monkeypatch.setattr(module, "os", made)
    return made


def names(spool: Spool) -> list[str]:
    """Return the ids of the events that wait."""
    return [one.event_id for one in spool.waiting()]


def reopened(spool: Spool) -> list[str]:
    """Return what the next process finds."""
    spool.close()
    with_new = Spool(spool.folder)
    found = names(with_new)
    with_new.close()
    return found


@pytest.mark.parametrize("space", [0, 1, 10, 60])
def test_a_full_disk(disk: Disk, tmp_path: Path, space: int) -> None:
    """The part of an event that fitted is cut off, so that later events can be read."""
    spool = Spool(tmp_path)
    spool.append(event(1))
    disk.space = space
    with pytest.raises(OSError, match="No space"):
        spool.append(event(2))
    assert names(spool) == [one.event_id for one in waiting_events(tmp_path)] == ["e1"]
    disk.space = None
    for n in (3, 4):
        spool.append(event(n))
    assert names(spool) == ["e1", "e3", "e4"]
    assert reopened(spool) == ["e1", "e3", "e4"]


def test_no_copy_is_needed_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    """Space for one event is enough for it, however many wait."""
    spool = Spool(tmp_path)
    for n in range(20):
        spool.append(event(n))
    disk.space = 10
    with pytest.raises(OSError, match="No space"):
        spool.append(event(20))
    disk.space = 100
    spool.append(event(21))
    assert reopened(spool) == [f"e{n}" for n in (*range(20), 21)]


def test_a_failed_sync(disk: Disk, tmp_path: Path) -> None:
    """After a failed sync nothing is accepted until the log was written to a new file."""
    spool = Spool(tmp_path)
    spool.append(event(1))
    before = (tmp_path / "events").stat().st_ino
    disk.fails = {"fsync"}
    for n in (2, 3):
        with pytest.raises(OSError, match="Input/output"):
            spool.append(event(n))
        assert names(spool) == ["e1"]
    disk.fails = set()
    spool.append(event(4))
    assert (tmp_path / "events").stat().st_ino != before
    assert not list(tmp_path.glob("*.new"))
    assert reopened(spool) == ["e1", "e4"]


def test_the_cut_fails_too(disk: Disk, tmp_path: Path) -> None:
    """A part of an event that cannot be cut off is not appended to."""
    spool = Spool(tmp_path)
    spool.append(event(1))
    disk.space, disk.fails = 10, {"ftruncate"}
    with pytest.raises(OSError, match="No space"):
        spool.append(event(2))
    assert names(spool) == ["e1"]
    with pytest.raises(OSError, match="No space"):
        spool.append(event(3))
    disk.space = None
    spool.append(event(4))
    disk.fails = set()
    assert reopened(spool) == ["e1", "e4"]


@pytest.mark.parametrize("count", [1, 3])
def test_the_mark_fails(disk: Disk, tmp_path: Path, count: int) -> None:
    """The mark of an emptied log never hides the events that were accepted after it."""
    spool = Spool(tmp_path)
    for n in range(3):
        spool.append(event(n))
    spool.delivered(event(0))
    spool.checkpoint()
    disk.space = 0
    for n in (1, 2):
        spool.delivered(event(n))
    assert spool.is_empty
    with pytest.raises(OSError, match="No space"):
        spool.append(event(3))
    disk.space = None
    for n in range(4, 4 + count):
        spool.append(event(n))
    assert reopened(spool) == [f"e{n}" for n in range(4, 4 + count)]


def test_a_mark_that_failed_is_stored_later(disk: Disk, tmp_path: Path) -> None:
    """A failed mark stops no delivery; the next one stores it."""
    spool = Spool(tmp_path)
    for n in range(3):
        spool.append(event(n))
    disk.space = 0
    spool.delivered(event(0))
    spool.checkpoint()
    disk.space = None
    spool.checkpoint()
    assert reopened(spool) == ["e1", "e2"]


def test_delivered_events_make_space(disk: Disk, tmp_path: Path) -> None:
    """A new log that does not fit on the disk changes nothing."""
    spool = Spool(tmp_path, bytes_max=500)
    for n in range(5):
        spool.append(event(n))
    for n in (0, 1):
        spool.delivered(event(n))
    disk.space = 50
    with pytest.raises(OSError, match="No space"):
        spool.append(event(5))
    assert names(spool) == ["e2", "e3", "e4"]
    disk.space = None
    spool.append(event(5))
    assert reopened(spool) == ["e2", "e3", "e4", "e5"]


def test_rejected_events(disk: Disk, tmp_path: Path) -> None:
    """A rejected event that did not fit still waits, and hides no other rejected one."""
    spool = Spool(tmp_path)
    for n in (1, 2):
        spool.append(event(n))
    disk.space = 10
    with pytest.raises(OSError, match="No space"):
        spool.reject(event(1), NotFound("topic", "t"))
    assert names(spool) == ["e1", "e2"]
    disk.space = None
    for n in (1, 2):
        spool.reject(event(n), NotFound("topic", "t"))
    assert [one.event_id for one in rejected_events(tmp_path)] == ["e1", "e2"]
    spool.close()


def test_damage(tmp_path: Path) -> None:
    """Damage stops a delivery, and the list shows the events on both sides of it."""
    spool = Spool(tmp_path)
    for n in range(3):
        spool.append(event(n))
    spool.close()
    text = bytearray((tmp_path / "events").read_bytes())
    text[text.index(b"\n") + 20] ^= 1
    (tmp_path / "events").write_bytes(text)
    for _ in range(2):
        with pytest.raises(Conflict, match="damaged"):
            Spool(tmp_path)
    assert [one.event_id for one in waiting_events(tmp_path)] == ["e0", "e2"]


def test_closed(tmp_path: Path) -> None:
    """A closed spool writes to no file."""
    spool = Spool(tmp_path)
    spool.close()
    with pytest.raises(Conflict, match="closed"):
        spool.append(event(1))
