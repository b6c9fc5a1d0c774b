"""The batch executor: collects runs of processors that take many runs in one call.

A call starts when its group is full, or when its first run has waited long enough; the number of
concurrent calls is bounded by the worker's concurrency. Each run of a call keeps its own context,
token and end: a cancel ends one of them, a timeout ends those whose time is up, and the later
result of the call for an ended run is ignored. Suspects (runs that may have killed a worker) are
called alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from penstock.audit.telemetry import ServiceError
from penstock.core.clock import SECOND
from penstock.core.naming import ProcessorKey
from penstock.pipelines.declare.collect import Collect, item_outcomes
from penstock.runs.rows import HeldRun
from penstock.worker.buffer import is_suspect
from penstock.worker.context import RunContext
from penstock.worker.outcome import outcome_of_error, outcome_of_value
from penstock.worker.worker_core import WorkerCore


class BatchExecutor:
    """Executor of processors that take many runs per call; the watch calls `tick`."""

    def __init__(self, steps: WorkerCore, *, on_ends: Callable[[], None]) -> None:
        self._steps = steps
        self._on_ends = on_ends
        self._lock = threading.Lock()
        self._groups: dict[int, deque[tuple[float, HeldRun]]] = {}
        self._calls: set[_Call] = set()
        self._is_stopping = False
        self._known: object = None
        self._processors: frozenset[int] = frozenset()

    @property
    def processors(self) -> frozenset[int]:
        """Keys of the processors that take many runs at once."""
        known = self._steps.known
        if known is not self._known:
            collecting = (n for n, one in known.items() if one.processor.terms.collect is not None)
            self._known, self._processors = known, frozenset(collecting)
        return self._processors

    def collect_of(self, processor_key: ProcessorKey) -> Collect | None:
        """Return how a processor collects; None when it takes one run at a time."""
        return self._steps.known[processor_key].processor.terms.collect

    @property
    def waiting(self) -> int:
        """Number of runs that have not started."""
        return sum(len(group) for group in list(self._groups.values()))

    @property
    def uncounted(self) -> int:
        """Number of held runs that do not use concurrency: collected runs, and all but one per
        call.
        """
        gathered = 0
        for processor, group in list(self._groups.items()):
            collect = self.collect_of(ProcessorKey(processor))
            gathered += min(len(group), 0 if collect is None else collect.max)
        return gathered + sum(len(call.contexts) - 1 for call in list(self._calls))

    def put(self, runs: Sequence[HeldRun], now: float) -> None:
        """Add runs claimed at `now` to their groups; start each group that is full."""
        with self._lock:
            for run in runs:
                self._groups.setdefault(run.processor_key, deque()).append((now, run))
        self.tick(now)

    def tick(self, now: float) -> float | None:
        """Start groups that are full or have waited long enough; return when the next one will."""
        for group in self._due(now):
            self._begin(group, now)
        waits = [
            entries[0][0] + collect.wait_us / SECOND
            for processor, entries in list(self._groups.items())
            if entries and (collect := self.collect_of(ProcessorKey(processor))) is not None
        ]
        return min(waits, default=None)

    def expire(self, seconds: float, now: float) -> list[HeldRun]:
        """Remove runs that could not start within `seconds` after they should have."""
        return self._taken(lambda collect: now - seconds - collect.wait_us / SECOND)

    def clear(self) -> list[HeldRun]:
        """Remove and return all runs that have not started."""
        return self._taken(lambda _: float("inf"))

    def close(self, seconds: float) -> bool:
        """Start no more calls and wait for the current ones; return True when all ended."""
        self._is_stopping = True
        until = self._steps.clock.monotonic() + seconds
        for call in list(self._calls):
            call.thread.join(max(0.0, until - self._steps.clock.monotonic()))
        return not any(call.thread.is_alive() for call in list(self._calls))

    def _due(self, now: float) -> Iterator[list[HeldRun]]:
        """Yield groups that are ready to start, within the worker's concurrency."""
        while not self._is_stopping and now < self._steps.session.safe_until:
            with self._lock:
                if self._busy() >= self._steps.options.concurrency:
                    return
                found = next(
                    (
                        g
                        for p, e in self._groups.items()
                        if (g := self._ready(ProcessorKey(p), e, now))
                    ),
                    None,
                )
                if found is None:
                    return
            yield found

    def _busy(self) -> int:
        """Count calls that use concurrency; a call whose runs have all been ended uses none."""
        running = self._steps.running
        return sum(1 for c in self._calls if any(x.held.token in running for x in c.contexts))

    def _ready(
        self, processor_key: ProcessorKey, entries: deque[tuple[float, HeldRun]], now: float
    ) -> list[HeldRun] | None:
        collect = self.collect_of(processor_key)
        if not entries or collect is None:
            return None
        if is_suspect(entries[0][1]):
            return [entries.popleft()[1]]
        if len(entries) < collect.max and now < entries[0][0] + collect.wait_us / SECOND:
            return None
        group: list[HeldRun] = []
        while entries and len(group) < collect.max and not is_suspect(entries[0][1]):
            group.append(entries.popleft()[1])
        return group

    def _begin(self, group: Sequence[HeldRun], now: float) -> None:
        contexts: list[RunContext] = []
        for held in group:
            try:
                context = self._steps.begin(held, now)
            except Exception as error:  # the store is unavailable: a suspect could not be marked
                self._steps.events.emit(ServiceError("worker.collector", str(error), 0.0))
                with self._lock:
                    self._groups.setdefault(held.processor_key, deque()).appendleft((now, held))
                continue
            if context is not None:
                contexts.append(context)
        if not contexts:
            self._on_ends()
            return
        call = _Call(contexts, self._run)
        with self._lock:
            self._calls.add(call)
        call.thread.start()

    def _run(self, call: _Call) -> None:
        try:
            for context, value in zip(call.contexts, _call_once(call.contexts), strict=True):
                if isinstance(value, BaseException):
                    outcome = outcome_of_error(value)
                else:
                    outcome = outcome_of_value(context, value)
                self._steps.end(context, outcome)
        finally:
            with self._lock:
                self._calls.discard(call)
            self._on_ends()
            if self.waiting:
                self.tick(self._steps.clock.monotonic())

    def _taken(self, before: Callable[[Collect], float]) -> list[HeldRun]:
        out: list[HeldRun] = []
        with self._lock:
            for processor, entries in self._groups.items():
                collect = self.collect_of(ProcessorKey(processor))
                assert collect is not None, processor
                while entries and entries[0][0] < before(collect):
                    out.append(entries.popleft()[1])
        return out


class _Call:
    """One call of a processor, on its own thread."""

    __slots__ = ("contexts", "thread")

    def __init__(self, contexts: Sequence[RunContext], run: Callable[[_Call], None]) -> None:
        self.contexts = tuple(contexts)
        name = f"penstock-collect-{contexts[0].held.token}"
        self.thread = threading.Thread(target=run, args=(self,), name=name, daemon=True)


def _call_once(contexts: Sequence[RunContext]) -> list[object]:
    """Call a collecting processor once; return each run's value, or the exception it raised."""
    declared = contexts[0].declared
    body = declared.body
    assert body is not None, declared.path
    try:
        returned = body(list(contexts))
        if declared.runs == "async":
            returned = asyncio.run(returned)
    except BaseException as error:
        return [error] * len(contexts)
    return item_outcomes(returned, len(contexts))
