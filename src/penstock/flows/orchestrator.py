"""The orchestrator: acts on flow events and probes the data that gates need.

One step takes flow events and due probes in batches, evaluates their flows under lock
(`flows.advance.store`), and runs the probes that gates need outside any transaction: a probe is
leased first, and its result is evaluated later if the lease's token is still current. Slow probes
run on their own threads and do not delay other flows. Safe in any number of replicas; after a
crash, flow events and leases remain and are picked up again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.core.clock import SECOND
from penstock.core.ids import encode
from penstock.core.naming import runs_channel
from penstock.db.isolation import IsolatedBatches
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.probes import gate_probe_request, ordered_probe_request
from penstock.flows.advance.snapshot import Evidence, NeededProbe, ProbeOrder, Wakeup
from penstock.flows.advance.store import AdvanceResult, advance
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import Prober, ProbeRequest, no_probes
from penstock.flows.items.expander import Expander
from penstock.flows.items.sources import ItemQuery, no_queries
from penstock.flows.run_gates import RunGates
from penstock.flows.store.completions import flow_event_take
from penstock.flows.store.flows import NextDue, cascade_next_later, phase_due
from penstock.flows.store.parameters import flow_parameters
from penstock.pipelines.declare.pipeline import Pipeline

BATCH: Final = 500
BUSY_US: Final = 50_000
"""Delay before retrying work that another orchestrator holds."""
CHANNEL: Final = "flows"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Counts of one step, and when the next work is due."""

    flows: int = 0
    decisions: int = 0
    triggers: int = 0
    runs: int = 0
    ended: int = 0
    reruns: int = 0
    probes: int = 0
    next_at: int | None = None
    now: int = 0

    def plus(self, part: AdvanceResult, probes: int = 0) -> StepCounts:
        """Add the counts of one transaction."""
        return replace(
            self,
            flows=self.flows + part.flows,
            decisions=self.decisions + part.decisions,
            triggers=self.triggers + part.triggers,
            runs=self.runs + part.runs,
            ended=self.ended + part.ended,
            reruns=self.reruns + part.reruns,
            probes=self.probes + probes,
        )


@dataclass(frozen=True, slots=True)
class _Observed:
    order: ProbeOrder
    evidence: Evidence


class _Step(NamedTuple):
    """The result of one transaction; `next_due` returns when work is due, and the current time."""

    part: AdvanceResult
    is_full: bool
    next_due: Callable[[], NextDue]


class Orchestrator:
    """Service that drives flows from phase to phase."""

    name = "orchestrator"

    def __init__(
        self,
        store: Transactions,
        probe: Prober = no_probes,
        *,
        known: Callable[[ProbeRequest], Sequence[Observation] | None] | None = None,
        query: ItemQuery = no_queries,
        holder: str = "orchestrator",
        pipelines: Sequence[Pipeline] = (),
        threads: int = 0,
        batch: int = BATCH,
    ) -> None:
        """Probe data through `probe`; with `threads`, probes run in the background.

        known: returns the observations of a probe from a cache, or None; cached observations are
        evaluated without a lease.
        query: runs the queries that list the items of processors.
        pipelines: code loaded here, for expected counts and items that are functions.
        """
        self._store = store
        self._probe = probe
        self._known = known
        self._holder = holder
        self._batch = batch
        self._code = {pipeline.digest: pipeline for pipeline in pipelines}
        self._threads: Executor | None = None
        if threads:
            self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-probe")
        self._observed: deque[_Observed] = deque()
        self._batches = IsolatedBatches[int](store, batch, record_unadvanced)
        self._expander = Expander(
            store, query, actor=holder, code=self._code, threads=self._threads
        )
        self._run_gates = RunGates(
            store,
            probe,
            known=known,
            actor=holder,
            code=self._code,
            threads=self._threads,
            batch=batch,
        )

    def run_once(self) -> StepCounts:
        """Act on all events and due work; probes are run, or started in the background."""
        total = StepCounts()
        while True:
            count = min(len(self._observed), self._batches.rows)
            observed = [self._observed.popleft() for _ in range(count)]
            part, is_full, next_due = self._stepped(observed)
            next_at, gates_at, items_at, now = next_due()
            total = total.plus(part, len(part.probes))
            if part.pools:
                self._store.wake(sorted({runs_channel(pool) for pool in part.pools}))
            if part.stopped:
                self._store.wake(["cancel"])
            for order in part.probes:
                self._start_probe(order)
            expanded = 0
            if self._expander.has_results or (items_at is not None and items_at <= now):
                expanded = self._expand()
                total = replace(total, runs=total.runs + expanded)
                next_at, gates_at, items_at, now = self._store.read(cascade_next_later)()
            is_due = next_at is not None and next_at <= now
            if not (is_full or self._observed or expanded or (is_due and part.flows)):
                break
        if is_due:
            # Another replica holds it and will handle it, or its crash releases it. Skipped flows
            # stay due.
            next_at = now + (SECOND if self._batches.has_aside else BUSY_US)
        if self._run_gates.has_results or (gates_at is not None and gates_at <= now):
            part_of_runs = self._run_gates.run_once()
            total = replace(
                total,
                decisions=total.decisions + part_of_runs.decisions,
                runs=total.runs + part_of_runs.passed,
                probes=total.probes + part_of_runs.probes,
            )
            gates_at = self._store.read(lambda tx: cascade_next_later(tx)().run_gates_at)
        if items_at is not None and items_at <= now:
            items_at = now + BUSY_US
        due = [at for at in (next_at, gates_at, items_at) if at is not None]
        return replace(total, next_at=min(due, default=None), now=now)

    def _expand(self) -> int:
        """Evaluate and continue expansions. Return how many runs and evaluations began."""
        expanded = self._expander.run_once()
        if expanded.pools:
            self._store.wake([f"runs:{pool}" for pool in sorted(expanded.pools)])
        return expanded.runs + expanded.evaluations

    def close(self) -> None:
        """Start no more probes and wait for the running ones."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _stepped(self, observed: list[_Observed]) -> _Step:
        """Run one transaction; if it fails, keep the observations for the next one.

        A flow that fails on its own is excluded from the following transactions; the others
        continue.
        """
        step: _Step | None = None
        try:
            step = self._batches.write(lambda tx: self._step(tx, observed))
        finally:
            if step is None:
                self._observed.extendleft(reversed(observed))
        if step is not None:
            return step
        aside = self._store.read(self._batches.aside)
        self._observed = deque(
            item for item in self._observed if item.order.flow.flow_id not in aside
        )
        return _Step(AdvanceResult(), True, self._store.read(cascade_next_later))

    def _step(self, tx: Tx, observed: Sequence[_Observed]) -> _Step:
        wakeups: dict[int, Wakeup] = {}
        for item in observed:
            wakeup = wakeups.setdefault(item.order.flow.flow_id, Wakeup())
            wakeup.evidence[item.order.gate_id] = item.evidence
        rows, aside = self._batches.rows, self._batches.aside(tx)
        # A batch with one flow: a single observation, or the events of a single flow.
        events = [] if observed and rows == 1 else flow_event_take(tx, rows, aside)
        for event in events:
            wakeup = wakeups.setdefault(event.flow_id, Wakeup())
            if event.phase is None:
                wakeup.all_gates = True
            else:
                wakeup.phases.add(event.phase)
                if event.processor is not None:
                    wakeup.reported.add((event.phase, event.processor))
                if event.is_failure:
                    wakeup.failures[event.phase] += 1
        # Events first; due probes are taken once there are no more events.
        for flow_id, gate_id in [] if wakeups else phase_due(tx, rows, aside):
            wakeup = wakeups.setdefault(flow_id, Wakeup())
            if gate_id is not None:
                wakeup.due.add(gate_id)
        if not wakeups:
            return _Step(AdvanceResult(), False, cascade_next_later(tx))
        self._batches.trying(wakeups)
        known = None if self._known is None else partial(self._cached, tx)
        part = advance(tx, wakeups, actor=self._holder, holder=self._holder, known=known)
        return _Step(part, len(events) == rows, cascade_next_later(tx))

    def _start_probe(self, order: ProbeOrder) -> None:
        if self._threads is None:
            self._keep(order, self._probed(order))
            return
        future = self._threads.submit(self._probed, order)
        future.add_done_callback(lambda done: self._on_probed(order, done))

    def _on_probed(self, order: ProbeOrder, done: Future[list[Observation]]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._keep(order, done.result())
            self._store.wake([CHANNEL])

    def _keep(self, order: ProbeOrder, observations: Sequence[Observation]) -> None:
        observed = {one.key: one for one in observations}
        evidence = Evidence(token=order.token, observations=observed, is_output=order.is_output)
        self._observed.append(_Observed(order, evidence))

    def _probed(self, order: ProbeOrder) -> list[Observation]:
        return list(self._probe(ordered_probe_request(order, self._code)))

    def _cached(self, tx: Tx, wanted: NeededProbe) -> dict[str, Observation] | None:
        """Return the cached observations for a gate, or None if it must be probed."""
        assert self._known is not None
        flow, planned, ask = wanted.snapshot.flow, wanted.snapshot.planned, wanted.ask
        request = gate_probe_request(
            flow,
            planned,
            (ask.phase, ask.processor or ""),
            self._code.get(flow.digest),
            parameters=flow_parameters(tx, [(flow, planned)])[flow.flow_id],
            since=wanted.since,
            is_output=wanted.is_output,
        )
        observed = self._known(request)
        return None if observed is None else {one.key: one for one in observed}


def record_unadvanced(tx: Tx, flow_id: int, error: Exception) -> None:
    """Open an alert about a flow that cannot be advanced; it is evaluated again later."""
    alert_open(
        tx,
        NewAlert(
            rule="flow_stuck",
            dedupe_key=f"flow_stuck:{flow_id}",
            severity="HIGH",
            subject_kind="flow",
            subject=flow_id,
            message=f"Flow {encode('flow', flow_id)} cannot be advanced: "
            f"{type(error).__name__}: {error}"[:1_000],
        ),
    )
