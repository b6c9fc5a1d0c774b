"""Looking at the data of a gate: all dependencies at once, each at most once, none for ever.

`Probes.look` never raises: what cannot be seen is a sighting with the error in words. Looks run on
a bounded number of threads, share results for 300 seconds and are bounded in time. Called by the
orchestrator, by `gate check` and by consumers with gates of their own; built by `assembly`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.core.clock import SECOND, Clock, Micros
from penstock.core.errors import PenstockError
from penstock.flows.gates.evidence import Sighting
from penstock.pipelines.dependency import Dependency
from penstock.probes.protocol import Look, ProbeFailed, Warehouse
from penstock.probes.question import Question, question, sighting
from penstock.probes.redaction import redacted
from penstock.probes.single_flight import KEEP, Flights
from penstock.probes.timeout import timed_out
from penstock.probes.warehouses import is_same_file, warehouse_open

THREADS: Final = 8


class Probes:
    """Sightings of dependencies in any number of warehouses; safe to share between threads.

    names: addresses by the name a pipeline uses for them, so that passwords stay out of its code.
    own: the store's file, which is no warehouse (`probes.sqlite` says why).
    """

    def __init__(
        self,
        clock: Clock,
        *,
        names: Mapping[str, str] | None = None,
        own: Path | None = None,
        opener: Callable[[str], Warehouse] = warehouse_open,
        threads: int = THREADS,
        keep_us: Micros = KEEP,
    ) -> None:
        self._clock = clock
        self._names = dict(names or {})
        self._own = own
        self._open = opener
        self._lock = threading.Lock()
        self._warehouses: dict[str, Warehouse] = {}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-probe")
        self._flights: Flights[Sighting] = Flights(self._threads, clock, keep_us=keep_us)

    def look(self, look: Look) -> list[Sighting]:
        """Return one sighting per dependency, in their order; waits at most `budget.seconds`."""
        flights = [self._begin(dependency, look) for dependency in look.dependencies]
        _wait_for([f for f in flights if isinstance(f, Future)], look.budget.seconds)
        return [
            self._end(dependency, flight, look)
            for dependency, flight in zip(look.dependencies, flights, strict=True)
        ]

    def close(self) -> None:
        """Begin no more looks, wait for those under way, let go of every connection."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            warehouses, self._warehouses = list(self._warehouses.values()), {}
        for warehouse in warehouses:
            warehouse.close()

    def _begin(self, dependency: Dependency, look: Look) -> Future[Sighting] | Exception:
        try:
            address = self._address(dependency)
            warehouse = self._warehouse(address)
            asked = question(dependency, look, warehouse)

            def fly(began: Micros) -> Sighting:
                return self._fly(asked, warehouse, look, began)

            key = (address, dependency.table, look.partition, asked.shape)
            return self._flights.join(key, fly, since=look.since)
        except Exception as error:  # whatever it is, the dependency counts as missing
            return error

    def _fly(self, asked: Question, warehouse: Warehouse, look: Look, began: Micros) -> Sighting:
        started = self._clock.monotonic()
        answer = warehouse.read(asked.statements, look.budget)
        took = round((self._clock.monotonic() - started) * SECOND)
        return sighting(asked, answer, partition=look.partition, looked_at=began, took_us=took)

    def _end(
        self, dependency: Dependency, flight: Future[Sighting] | Exception, look: Look
    ) -> Sighting:
        if not isinstance(flight, Future):
            error: BaseException | None = flight
        elif not flight.done():
            error = timed_out(look.budget.seconds)
        elif flight.cancelled():
            error = ProbeFailed("the probes were closed before they could look")
        else:
            error = flight.exception()
        if error is None and isinstance(flight, Future):
            # The same rows may be looked at as same_day by one processor and optional by another.
            return replace(flight.result(), key=dependency.key)
        return Sighting(
            key=dependency.key, looked_at=self._clock.now(), error=self._words(dependency, error)
        )

    def _words(self, dependency: Dependency, error: BaseException | None) -> str:
        known = isinstance(error, ProbeFailed | PenstockError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        address = dependency.warehouse or ""
        return redacted(text, self._names.get(address, address))

    def _address(self, dependency: Dependency) -> str:
        if not dependency.warehouse:
            raise ProbeFailed(
                "no warehouse to look into; declare one on the pipeline or on the dependency"
            )
        return self._names.get(dependency.warehouse, dependency.warehouse)

    def _warehouse(self, address: str) -> Warehouse:
        with self._lock:
            if address not in self._warehouses:
                if self._own is not None and is_same_file(address, self._own):
                    raise ProbeFailed(
                        f"{address} is Penstock's own database; keep the data in a file of its own"
                    )
                self._warehouses[address] = self._open(address)
            return self._warehouses[address]


def _wait_for(flights: Sequence[Future[Sighting]], seconds: float) -> None:
    """Wait until all have ended or the seconds have passed.

    Not `concurrent.futures.wait`: that goes on waiting for a future that was cancelled by closing.
    """
    left = len(flights)
    lock = threading.Lock()
    ended = threading.Event()

    def one_ended(_: Future[Sighting]) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left == 0:
                ended.set()

    for flight in flights:
        flight.add_done_callback(one_ended)
    if flights:
        ended.wait(seconds)
