"""Probing the data of a gate: all dependencies at once, each at most once, within a time limit.

`ProbeRunner.probe` never raises: a failed probe returns a result with the error message. Probes run
on a bounded number of threads, share results for 300 seconds and are bounded in time. Called by the
orchestrator, by `gate check` and by consumers with their own gates; built by `assembly`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.core.clock import SECOND, Clock, Micros, SystemClock
from penstock.core.errors import PenstockError
from penstock.flows.gates.evidence import Observation
from penstock.flows.items.item_list import ITEMS_MAX, InvalidItems
from penstock.flows.items.sources import ItemRequest
from penstock.pipelines.dependency import Dependency
from penstock.probes.binding import bind_parameters, row_value
from penstock.probes.protocol import ProbeBudget, ProbeFailed, ProbeRequest, Warehouse
from penstock.probes.question import ProbeQueries, build_queries, read_observation
from penstock.probes.redaction import redacted
from penstock.probes.single_flight import KEEP, SingleFlight
from penstock.probes.timeout import timeout_error
from penstock.probes.warehouses import is_same_file, open_warehouse

THREADS: Final = 8


class ProbeRunner:
    """Prober of dependencies in any number of warehouses; safe to share between threads.

    clock: replaces the system clock in tests. names: addresses by the name a pipeline uses for
    them, which keeps passwords out of its code. own: the store's file, which must not be probed
    (see `probes.sqlite`).
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        names: Mapping[str, str] | None = None,
        own: Path | None = None,
        opener: Callable[[str], Warehouse] = open_warehouse,
        threads: int = THREADS,
        keep_us: Micros = KEEP,
    ) -> None:
        clock = clock or SystemClock()
        self._clock = clock
        self._names = dict(names or {})
        self._own = own
        self._open = opener
        self._lock = threading.Lock()
        self._warehouses: dict[str, Warehouse] = {}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-probe")
        self._calls: SingleFlight[Observation] = SingleFlight(self._threads, clock, keep_us=keep_us)

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return one observation per dependency, in their order, within `budget.seconds`."""
        calls = [self._begin(dependency, request) for dependency in request.dependencies]
        _wait_for([f for f in calls if isinstance(f, Future)], request.budget.timeout_s)
        return [
            self._end(dependency, call, request)
            for dependency, call in zip(request.dependencies, calls, strict=True)
        ]

    def query_items(self, request: ItemRequest) -> list[Any]:
        """Return one value per row of a query that lists items; raises an error for users.

        The value of a row is its only column, or a mapping of its columns by name.
        """
        name = request.warehouse or ""
        if not name:
            raise InvalidItems("no warehouse to query for items; declare Pipeline(warehouse=...)")
        address = self._names.get(name, name)
        warehouse = self._warehouse(address)
        values = {
            **request.parameters,
            "partition": request.partition,
            "customer": request.customer,
        }
        try:
            statement = bind_parameters(
                request.sql or "", values, warehouse.dialect, rows_max=ITEMS_MAX + 1
            )
            found = warehouse.read([statement], ProbeBudget())
        except ProbeFailed as error:
            raise ProbeFailed(redacted(str(error), address)) from None
        return [row_value(row, found.columns[0]) for row in found.results[0]]

    def close(self) -> None:
        """Start no more probes, wait for running ones, close every connection."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            warehouses, self._warehouses = list(self._warehouses.values()), {}
        for warehouse in warehouses:
            warehouse.close()

    def _begin(
        self, dependency: Dependency, request: ProbeRequest
    ) -> Future[Observation] | Exception:
        try:
            address = self._address(dependency)
            warehouse = self._warehouse(address)
            query = build_queries(dependency, request, warehouse)

            def probe(began: Micros) -> Observation:
                return self._probe(query, warehouse, request, began)

            # One customer's rows never count for another, unless the table is shared.
            whose = None if dependency.shared else request.customer
            key = (address, dependency.table, request.partition, whose, query.shape)
            return self._calls.join(key, probe, since=request.since)
        except Exception as error:  # after any error the dependency counts as missing
            return error

    def _probe(
        self, query: ProbeQueries, warehouse: Warehouse, request: ProbeRequest, began: Micros
    ) -> Observation:
        started = self._clock.monotonic()
        results = warehouse.read(query.statements, request.budget)
        took = round((self._clock.monotonic() - started) * SECOND)
        return read_observation(query, results, request=request, probed_at=began, took_us=took)

    def _end(
        self, dependency: Dependency, call: Future[Observation] | Exception, request: ProbeRequest
    ) -> Observation:
        if not isinstance(call, Future):
            error: BaseException | None = call
        elif not call.done():
            error = timeout_error(request.budget.timeout_s)
        elif call.cancelled():
            error = ProbeFailed("the probes were closed before this one ran")
        else:
            error = call.exception()
        if error is None and isinstance(call, Future):
            # The same rows may be same_day for one processor and optional for another.
            return replace(call.result(), key=dependency.key)
        return Observation(
            key=dependency.key, looked_at=self._clock.now(), error=self._message(dependency, error)
        )

    def _message(self, dependency: Dependency, error: BaseException | None) -> str:
        known = isinstance(error, ProbeFailed | PenstockError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        address = dependency.warehouse or ""
        return redacted(text, self._names.get(address, address))

    def _address(self, dependency: Dependency) -> str:
        if not dependency.warehouse:
            raise ProbeFailed(
                "no warehouse to probe; declare one on the pipeline or on the dependency"
            )
        return self._names.get(dependency.warehouse, dependency.warehouse)

    def _warehouse(self, address: str) -> Warehouse:
        with self._lock:
            if address not in self._warehouses:
                if self._own is not None and is_same_file(address, self._own):
                    raise ProbeFailed(
                        f"{address} is Penstock's own database; keep the data in a separate file"
                    )
                self._warehouses[address] = self._open(address)
            return self._warehouses[address]


def _wait_for(calls: Sequence[Future[Observation]], seconds: float) -> None:
    """Wait until all calls have ended or the seconds have passed.

    `concurrent.futures.wait` would keep waiting for a future that was cancelled by `close`.
    """
    left = len(calls)
    lock = threading.Lock()
    ended = threading.Event()

    def one_ended(_: Future[Observation]) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left == 0:
                ended.set()

    for call in calls:
        call.add_done_callback(one_ended)
    if calls:
        ended.wait(seconds)
