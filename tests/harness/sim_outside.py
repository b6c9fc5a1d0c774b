"""Simulated external workers: the real use cases of `client.work`, on virtual time.

A worker claims a few runs, starts them, sends heartbeats one by one or in batches, identifies
itself by token or by name, and reports. Requests and responses get lost and are repeated. A worker
may return after its lease expired, or ignore a request to stop. Every response must match what is
stored: an accepted report is final.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.access.store.names import NameResolver
from penstock.client import Client
from penstock.core.clock import SECOND
from penstock.core.errors import PenstockError, StoreError
from penstock.core.ids import encode
from penstock.runs.external.client.work import (
    ClaimStatus,
    CompletionItem,
    ExternalWorker,
    FailureReport,
    Heartbeat,
    ProgressReport,
    RunOutcome,
)
from penstock.runs.rows import HeldRun
from penstock.testing.simulate.actors import ERRORS, Actor, Stage
from penstock.testing.simulate.faults import Fault
from penstock.testing.simulate.violation import Violation

T = TypeVar("T")
KEY = "7"
"""The API key that every external worker uses."""


@dataclass(slots=True)
class _Work:
    """A held run, as the worker remembers it."""

    run: HeldRun
    ends_at: int
    is_started: bool = False
    is_to_stop: bool = False
    failure: FailureReport | None = None


class SimExternalWorker(Actor):
    """An external worker that uses the API's use cases."""

    kind = "external"

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name, 45 * SECOND)
        self._slots = stage.rng.randint(1, 3)
        self._held: list[_Work] = []
        self._sent: list[tuple[Callable[[], RunOutcome], RunOutcome | None]] = []
        self.start()

    def start(self) -> None:
        """Start a new process: held runs are dropped, and their leases will expire."""
        names = NameResolver(self.store, self.stage.clock)
        self._me = ExternalWorker(self.name, KEY)
        self._work = Client(self.store, names=names).work
        self._held = []
        self._sent = []

    def step(self) -> None:
        """Repeat an old report from time to time, claim, then make one call for each held run."""
        if self._sent and self.stage.rng.random() < 0.4:
            self._repeat()
        free = self._slots - len(self._held)
        if free:
            self._claim(free)
        if len(self._held) > 1 and self.stage.rng.random() < 0.5:
            self._many()
        else:
            for work in list(self._held):
                self._one(work)

    def _claim(self, n: int) -> None:
        now, rng = self.stage.clock.now(), self.stage.rng
        for one in self._work.claim(self._me, n, lease_seconds=rng.choice((60, 300))):
            failure = None if rng.random() < 0.7 else FailureReport(error_type=rng.choice(ERRORS))
            ends_at = now + rng.randrange(600 * SECOND)
            self._held.append(_Work(one.run, ends_at, failure=failure))

    def _one(self, work: _Work) -> None:
        """Start, report or send a heartbeat, whichever is next for this run."""
        run_id, token = work.run.run_id, self._token(work)
        if not work.is_started:
            self._try(work, lambda: self._work.start(run_id, self._me, token=token, pod="sim"))
            work.is_started = work in self._held
            if work.is_started and self.is_recovering:
                self._one(work)
        elif work.is_to_stop and not self.stage.fault_occurs(Fault.LATE, 0.3):
            self._report(work, lambda: self._work.cancelled(run_id, self._me, token=token))
        elif not self._is_done(work):
            progress = ProgressReport(percent=self.stage.rng.randrange(100))
            status = self._try(
                work, lambda: self._work.heartbeat(run_id, self._me, token=token, progress=progress)
            )
            self._apply_response(work, status)
        elif (failure := work.failure) is not None and not self.is_recovering:
            self._report(work, lambda: self._work.fail(run_id, self._me, failure, token=token))
        else:
            self._report(work, lambda: self._work.complete(run_id, self._me, token=token))

    def _many(self) -> None:
        """Send heartbeats for all held runs, then report the finished ones, each in one call."""
        held = list(self._held)
        heartbeats = [Heartbeat(run_id=w.run.run_id, token=self._token(w)) for w in held]
        for work, status in zip(held, self._work.heartbeat_many(self._me, heartbeats), strict=True):
            if isinstance(status, PenstockError):
                self._drop(work)
            else:
                self._apply_response(work, status)
        good = [w for w in self._held if w.failure is None or self.is_recovering]
        done = [w for w in good if w.is_started and self._is_done(w)]
        if not done:
            return
        reports = [CompletionItem(run_id=w.run.run_id, token=w.run.token) for w in done]
        ends = self._work.complete_many(self._me, reports)
        for work, end in zip(done, ends, strict=True):
            self._held.remove(work)
            if isinstance(end, RunOutcome):
                self._check(end)

    def _report(self, work: _Work, call: Callable[[], RunOutcome]) -> None:
        """Send a report; one whose response was lost may be sent again later."""
        try:
            end = self._try(work, call)
        except StoreError:
            if self.stage.fault_occurs(Fault.DUPLICATE, 0.5):
                self._sent.append((call, None))
                self._held.remove(work)
            raise
        if end is None:
            return
        self._held.remove(work)
        self._check(end)
        if self.stage.fault_occurs(Fault.DUPLICATE, 0.3):
            self._sent.append((call, end))

    def _repeat(self) -> None:
        call, earlier = self._sent[-1]
        try:
            again = call()
        except StoreError:
            raise
        except PenstockError as error:
            again = None
            if earlier is not None:
                raise Violation("I24", f"accepted {earlier}, then refused: {error!r}") from error
        self._sent.pop()
        if again is None:
            return
        self._check(again)
        if earlier is not None and (again.state, again.token) != (earlier.state, earlier.token):
            raise Violation("I24", f"returned {earlier}, then {again}")

    def _try(self, work: _Work, call: Callable[[], T]) -> T | None:
        """Make a call; after a refusal the worker drops the run, unless it ignores the response."""
        try:
            return call()
        except StoreError:
            raise
        except PenstockError:
            self._drop(work)
            return None

    def _drop(self, work: _Work) -> None:
        if self.stage.fault_occurs(Fault.LATE, 0.3):
            work.ends_at, work.is_started = 0, True  # it continues and will be refused
        else:
            self._held.remove(work)

    def _apply_response(self, work: _Work, status: ClaimStatus | None) -> None:
        if status is None:
            return
        if status.claim_expiry_time < self.stage.clock.now():
            raise Violation("I3", f"returned an expired lease: {status}")
        work.is_to_stop = work.is_to_stop or status.cancel_requested
        work.is_started = work.is_started or status.state == "RUNNING"

    def _check(self, end: RunOutcome) -> None:
        """Check that the response matches what is stored, including the token."""
        run = Client(self.store).runs.get(encode("run", end.run_id))
        if (run.state, run.status, run.fencing_token) != (end.state, end.status, end.token):
            raise Violation("I24", f"returned {end}, stored {run}")

    def _is_done(self, work: _Work) -> bool:
        return self.is_recovering or self.stage.clock.now() >= work.ends_at

    def _token(self, work: _Work) -> int | None:
        """Return the token, or None for calls that rely on the worker's name."""
        return work.run.token if self.stage.rng.random() < 0.7 else None
