"""Submitting while the cache of pipelines expires."""

import itertools

import pytest

from penstock.runs.records import Submission
from tests.kits.client_harness import Harness


class HastyClock:
    """A clock on which an hour passes between any two readings."""

    def __init__(self) -> None:
        self._hours = itertools.count(10**6)

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return 3_600.0 * next(self._hours)


def test_cache_expires_meanwhile(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known when a single statement was chosen may be forgotten when it runs."""
    wanted = Submission(pipeline="nightly", customer="acme")
    runs = harness.client.runs
    runs.submit_many([wanted] * 2)
    monkeypatch.setattr(runs._names, "_clock", HastyClock())
    assert len(runs.submit_many([wanted] * 2)) == 2
    assert runs.submit(wanted).run_id
    assert harness.counts("runs") == {"runs": 5}
