"""The maximum number of requests in flight per endpoint, and paused endpoints.

Wraps the requests of one process (`bus.push.in_flight`) for the dispatcher: all methods take the
lock, and `changed` is notified whenever a request starts or ends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from penstock.bus.push.adaptive_concurrency import ConcurrencyWindow, failed, succeeded
from penstock.bus.push.in_flight import EndpointState, RequestsInFlight
from penstock.core.clock import SECOND
from penstock.db.isolation import interleaved
from penstock.runs.external.client.holder import FailureReport
from penstock.worker.endpoints.claims import EndpointRow
from penstock.worker.endpoints.exchange import Exchanged
from penstock.worker.endpoints.reply import slows_endpoint
from penstock.worker.endpoints.request import OutgoingRun

KNOWN_MAX: Final = 5_000
CLAIM_MAX: Final = 500
PAUSE_ASKED_MAX_SECONDS: Final = 600.0
"""Maximum pause of an endpoint that sends Retry-After; the run itself waits as long as requested.
"""

Claims = list[tuple[EndpointRow, int]]
"""Endpoints, and the number of runs of each that may start."""


class EndpointWindows:
    """The windows of all endpoints of a dispatcher; safe to use from any thread."""

    def __init__(self, most: int, concurrency_max: int) -> None:
        self._in_flight = RequestsInFlight(most)
        self._concurrency_max = concurrency_max
        self._rows: dict[int, EndpointRow] = {}
        self.changed = threading.Condition(self._in_flight.lock)
        """Notified whenever a request starts or ends."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight; call it under the lock of `changed`."""
        return self._in_flight.free == self._in_flight.most

    def concurrency(self) -> dict[int, int]:
        """Return the learned maximum number of concurrent requests, by processor key."""
        with self.changed:
            found = self._in_flight.endpoints
            return {number: one.window.max_in_flight for number, one in found.items()}

    def take_ready(self, rows: Sequence[EndpointRow], now: float) -> tuple[Claims, list[float]]:
        """Reserve requests for endpoints with ready runs; return them, and the pauses of others."""
        with self.changed:
            keys = frozenset(row.processor_key for row in rows)
            self._in_flight.ready = keys
            for row in rows:
                self._rows[row.processor_key] = row
            pauses = [self._endpoint(row).not_before - now for row in rows]
            self._forget(keys)
            ordered = interleaved(rows, lambda row: row.pipeline_key)
            return self._take(ordered, now), [pause for pause in pauses if pause > 0]

    def learn(self, one: Exchanged, now: float) -> None:
        """Release a request that ended and update the window based on its response."""
        with self.changed:
            self._learn(one, now)
            self.changed.notify_all()

    def take_next(self, batch: Sequence[Exchanged], now: float) -> Claims:
        """Reserve the next requests for the endpoints in a batch."""
        with self.changed:
            keys = dict.fromkeys(one.run.held.processor_key for one in batch)
            return self._take([self._rows[key] for key in keys if key in self._rows], now)

    def release_unused(self, claims: Claims, claimed: Sequence[OutgoingRun]) -> None:
        """Release reserved requests for which there was no run."""
        with self.changed:
            for row, n in claims:
                used = sum(run.held.processor_key == row.processor_key for run in claimed)
                self._in_flight.endpoints[row.processor_key].held -= n - used
            self.changed.notify_all()

    def _endpoint(self, row: EndpointRow) -> EndpointState:
        """Return an endpoint's state; a changed declaration starts with a new window."""
        known = self._in_flight.endpoints.get(row.processor_key)
        if known is None or known.text != row.endpoint:
            known = self._in_flight.endpoints[row.processor_key] = EndpointState(
                text=row.endpoint,
                window=ConcurrencyWindow(size_max=self._concurrency_max),
                owner=row.pipeline_key,
                held=0 if known is None else known.held,
            )
        return known

    def _forget(self, ready: frozenset[int]) -> None:
        """Once there are many endpoints, drop those with nothing ready and nothing in flight."""
        if len(self._in_flight.endpoints) > KNOWN_MAX:
            for number, one in list(self._in_flight.endpoints.items()):
                if not one.held and number not in ready:
                    del self._in_flight.endpoints[number], self._rows[number]

    def _take(self, rows: Sequence[EndpointRow], now: float) -> Claims:
        found: Claims = []
        for row in rows:
            n = self._in_flight.take(row.processor_key, now)
            if n > CLAIM_MAX:
                self._in_flight.endpoints[row.processor_key].held -= n - CLAIM_MAX
            if n:
                found.append((row, min(n, CLAIM_MAX)))
        return found

    def _learn(self, one: Exchanged, now: float) -> None:
        endpoint = self._in_flight.endpoints.get(one.run.held.processor_key)
        if endpoint is None:
            return
        endpoint.held -= 1
        if not slows_endpoint(one.reply, one.status):
            endpoint.window = succeeded(endpoint.window)
            return
        endpoint.window = failed(endpoint.window)
        asked = one.reply.retry_after_seconds if isinstance(one.reply, FailureReport) else None
        pause = max(endpoint.window.pause_us / SECOND, min(asked or 0.0, PAUSE_ASKED_MAX_SECONDS))
        endpoint.not_before = max(endpoint.not_before, now + pause)
