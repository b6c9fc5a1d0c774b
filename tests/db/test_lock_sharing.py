"""SQLite's write lock is shared: a process that writes on and on lets others in."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.db.sqlite.lock_sharing import HELD_MAX_S, POLL_MAX_S, RECENT_S, LockSharing
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Tx
from penstock.testing.clock import VirtualClock


class RecordingClock(VirtualClock):
    """A clock that records how long its callers slept."""

    def __init__(self) -> None:
        super().__init__(0)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Record and advance."""
        self.slept.append(seconds)
        self.advance(seconds=seconds)


class TestPauses:
    """When a process makes a pause before it takes the lock again."""

    @pytest.fixture
    def clock(self) -> RecordingClock:
        return RecordingClock()

    def transaction(self, sharing: LockSharing, clock: RecordingClock, seconds: float) -> None:
        """Hold the lock for some time."""
        sharing.share()
        began = clock.monotonic()
        clock.advance(seconds=seconds)
        sharing.released(began)

    def test_a_process_alone_never_pauses(self, clock: RecordingClock) -> None:
        """No other process writes, so a pause would only cost time."""
        sharing = LockSharing(clock)
        for _ in range(10):
            self.transaction(sharing, clock, HELD_MAX_S)
        assert clock.slept == []

    def test_others_are_let_in(self, clock: RecordingClock) -> None:
        """Short transactions without a gap count together; the pause is longer than a poll."""
        sharing = LockSharing(clock)
        sharing.conflicted()
        for _ in range(5):
            self.transaction(sharing, clock, 0.6 * HELD_MAX_S)
        assert len(clock.slept) == 2
        assert min(clock.slept) > POLL_MAX_S

    def test_a_gap_is_enough(self, clock: RecordingClock) -> None:
        """A process that does not write for the time of a poll need not wait as well."""
        sharing = LockSharing(clock)
        sharing.conflicted()
        for _ in range(4):
            self.transaction(sharing, clock, HELD_MAX_S)
            clock.advance(seconds=2 * POLL_MAX_S)
        assert clock.slept == []

    def test_a_conflict_is_forgotten(self, clock: RecordingClock) -> None:
        """Once other processes no longer write, there are no pauses."""
        sharing = LockSharing(clock)
        sharing.conflicted()
        clock.advance(seconds=RECENT_S)
        for _ in range(4):
            self.transaction(sharing, clock, HELD_MAX_S)
        assert clock.slept == []


def test_a_store_notices_other_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that was taken counts as a conflict, and every transaction is reported."""
    first, second = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db")
    calls: list[str] = []
    has_polled = threading.Event()

    def conflicted(_: LockSharing) -> None:
        calls.append("conflicted")
        has_polled.set()

    monkeypatch.setattr(LockSharing, "share", lambda _: calls.append("share"))
    monkeypatch.setattr(LockSharing, "conflicted", conflicted)
    monkeypatch.setattr(LockSharing, "released", lambda *_: calls.append("released"))
    writing = threading.Thread(target=second.write, args=(lambda _: None,))

    def hold(_: Tx) -> None:
        calls.clear()
        writing.start()
        assert has_polled.wait(60)

    first.write(hold)
    writing.join(60)
    assert sorted(calls) == ["conflicted", "released", "released", "share"]
    first.close()
    second.close()
