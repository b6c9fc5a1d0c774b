"""Processes that die at every commit: every change is reported, and a repeat has the same id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from penstock.alerts.sender import AlertSender
from penstock.core.clock import MINUTE, SECOND
from penstock.db.store import Store, Tx
from tests.alerts.kit import (
    PAGER,
    SLACK,
    Recorder,
    declared,
    end_alert,
    open_alert,
)
from tests.kits.client_harness import Harness

T = TypeVar("T")

SETTINGS = declared({"chat": SLACK, "pager": PAGER})
COMMITS = 14
"""Commits of a process that reports the scene; kills beyond them do nothing."""


class KilledError(BaseException):
    """The process is gone."""


class MortalStore:
    """A store whose process dies right before or right after one of its commits."""

    def __init__(self, store: Store, kill_at: int, moment: str) -> None:
        self._store = store
        self._kill_at = kill_at
        self._moment = moment
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Commit, unless the process dies first."""
        self.commits += 1
        is_last = self.commits == self._kill_at
        if is_last and self._moment == "before":

            def doomed(tx: Tx) -> T:
                body(tx)
                raise KilledError

            return self._store.write(doomed)
        value = self._store.write(body)
        if is_last:
            raise KilledError
        return value


def replica(store: Any, got: Recorder) -> AlertSender:
    return AlertSender(store, SETTINGS, got, jitter=lambda: 1.0, is_threaded=False)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_at_every_commit(harness: Harness, moment: str) -> None:
    """Of two replicas one dies at each commit in order; the other continues, in order.

    A receiver that drops repeated ids, as webhooks, pagers and mail servers do, sees every change
    once. Only a death between sending and storing the result repeats a notice.
    """
    got = Recorder()
    survivor = replica(harness.store, got)
    expected: set[tuple[str, str, int]] = set()
    deaths = 0
    for kill_at in range(1, COMMITS + 1):
        key = f"k{kill_at}"
        store = MortalStore(harness.store, kill_at, moment)
        mortal = replica(store, got)
        first = len(got.sent)
        open_alert(harness.store, key, rule=key)
        harness.clock.advance(10 * SECOND)
        died = False
        for change in ("opened", "resolved"):
            if change == "resolved":
                end_alert(harness.store, key)
                harness.clock.advance(10 * SECOND)
            if not died:
                try:
                    mortal.run_once()
                except KilledError:
                    died = True
                    deaths += 1
        harness.clock.advance(2 * MINUTE)  # leases of the dead process lapse
        survivor.run_once()
        harness.clock.advance(MINUTE)
        survivor.run_once()
        ours = got.sent[first:]
        alert_id = ours[0].alerts[0]
        expected = {(c, k, alert_id) for c in ("chat", "pager") for k in ("opened", "resolved")}
        by_id = {(s.channel, s.notice_id): (s.channel, s.kind, s.alerts[0]) for s in ours}
        assert sorted(by_id.values()) == sorted(expected), kill_at
        assert len(ours) - len(by_id) <= (moment == "before"), kill_at
        for channel in ("chat", "pager"):
            kinds = list(dict.fromkeys(s.kind for s in ours if s.channel == channel))
            assert kinds == ["opened", "resolved"], kill_at
    assert deaths >= 6


def test_two_replicas_send_once(harness: Harness) -> None:
    """While one process sends through a channel, another leaves it alone."""
    got = Recorder()
    other = replica(harness.store, got)
    one = replica(harness.store, got)

    def interfere() -> None:
        other.run_once()  # in the middle of a pass of the first

    got.on_sent = interfere
    for number in range(5):
        open_alert(harness.store, f"k{number}", rule=f"r{number}")
    harness.clock.advance(10 * SECOND)
    one.run_once()
    got.on_sent = lambda: None
    other.run_once()
    assert len(got.sent) == 10
    assert len({(s.channel, s.notice_id) for s in got.sent}) == 10
