"""The process reporter: stores the counts of this process, for rules over all processes."""

from __future__ import annotations

from penstock.alerts.process.counts import ProcessCounts
from penstock.alerts.store.process_minutes import process_minutes_add
from penstock.audit.telemetry import Served
from penstock.core.clock import Clock, SystemClock
from penstock.db.store import Transactions
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import Prober, ProbeRequest


class ProcessReporter:
    """Service that stores the counts of its process."""

    name = "process-reporter"

    def __init__(self, store: Transactions, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._counts = ProcessCounts()

    def on_event(self, event: Served) -> None:
        """Count a request to the API of this process."""
        self._counts.add_request(event.method, event.route, event.status)

    def timed(self, probe: Prober) -> Prober:
        """Return a prober that counts how long gate checks take."""

        def call(request: ProbeRequest) -> list[Observation]:
            began = self._clock.monotonic()
            try:
                return list(probe(request))
            finally:
                self._counts.add_gate_check(self._clock.monotonic() - began)

        return call

    def run_once(self) -> int:
        """Store the counts; return their number."""
        taken = self._counts.take()
        if not taken:
            return 0
        rows = [(metric, bucket, n) for (metric, bucket), n in sorted(taken.items())]
        try:
            self._store.write(lambda tx: process_minutes_add(tx, rows))
        except BaseException:
            self._counts.put_back(taken)
            raise
        return sum(taken.values())
