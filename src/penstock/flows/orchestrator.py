"""The orchestrator: what happened to flows is acted on, and gates look at data.

One step takes nudges and due looks in batches, judges their flows under lock (`store.cascade`), and
makes the looks that gates need outside any transaction: leased first, judged after, by whoever
comes back with the current token. Slow looks run on threads of their own and hold nobody up. Safe
in any number of replicas; a crash leaves nudges and leases that are found again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from penstock.db.store import Store, Tx
from penstock.flows.advance.snapshot import Evidence, LookOrder, Stir, Wanted
from penstock.flows.advance.store import Advanced, advance
from penstock.flows.gates.evidence import Sighting
from penstock.flows.gates.probe_request import Look, Looker, unseeing
from penstock.flows.store.completions import nudge_take
from penstock.flows.store.flows import Flow, cascade_next_ask, phase_due
from penstock.flows.store.plans import Planned
from penstock.pipelines.declare.pipeline import Pipeline

BATCH: Final = 500
BUSY_US: Final = 50_000
"""How long to leave alone what another orchestrator is acting on."""
CHANNEL: Final = "flows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """What a step did, and when something is due again."""

    flows: int = 0
    decisions: int = 0
    triggers: int = 0
    runs: int = 0
    ended: int = 0
    reruns: int = 0
    looks: int = 0
    next_at: int | None = None
    now: int = 0

    def plus(self, part: Advanced, looks: int = 0) -> Stepped:
        """This and a part of the same step."""
        return replace(
            self,
            flows=self.flows + part.flows,
            decisions=self.decisions + part.decisions,
            triggers=self.triggers + part.triggers,
            runs=self.runs + part.runs,
            ended=self.ended + part.ended,
            reruns=self.reruns + part.reruns,
            looks=self.looks + looks,
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    order: LookOrder
    evidence: Evidence


class _Step(NamedTuple):
    """What one transaction did, and what it saw ahead: when something is due, and the time."""

    part: Advanced
    is_full: bool
    look_ahead: Callable[[], tuple[int | None, int]]


class Orchestrator:
    """Drives flows from phase to phase."""

    name = "orchestrator"

    def __init__(
        self,
        store: Store,
        look: Looker = unseeing,
        *,
        known: Callable[[Look], Sequence[Sighting] | None] | None = None,
        holder: str = "orchestrator",
        pipelines: Sequence[Pipeline] = (),
        threads: int = 0,
        batch: int = BATCH,
    ) -> None:
        """An orchestrator that looks through `look`; with `threads`, looks do not hold it up.

        known: answers a look from memory, or None; what it knows is judged without a lease.
        pipelines: code that is loaded here, for expected counts that are functions.
        """
        self._store = store
        self._look = look
        self._known = known
        self._holder = holder
        self._batch = batch
        self._code = {pipeline.digest: pipeline for pipeline in pipelines}
        self._threads: Executor | None = None
        if threads:
            self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-look")
        self._seen: deque[_Seen] = deque()

    def run_once(self) -> Stepped:
        """Act on everything that happened and is due; looks are made, or begun."""
        total = Stepped()
        while True:
            seen = [self._seen.popleft() for _ in range(min(len(self._seen), self._batch))]
            part, is_full, look_ahead = self._stepped(seen)
            next_at, now = look_ahead()
            total = total.plus(part, len(part.looks))
            if part.pools:
                self._store.wake([f"runs:{pool}" for pool in sorted(part.pools)])
            if part.stopped:
                self._store.wake(["cancel"])
            for order in part.looks:
                self._make(order)
            is_due = next_at is not None and next_at <= now
            if not (is_full or self._seen or (is_due and part.flows)):
                break
        if is_due:
            next_at = now + BUSY_US  # others hold it: they act on it, or their crash frees it
        return replace(total, next_at=next_at, now=now)

    def close(self) -> None:
        """Begin no more looks; those under way are not waited for longer than they take."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _stepped(self, seen: list[_Seen]) -> _Step:
        """One transaction; what was seen is kept for the next one when it fails."""
        try:
            return self._store.write(lambda tx: self._step(tx, seen))
        except Exception:
            self._seen.extendleft(reversed(seen))
            raise

    def _step(self, tx: Tx, seen: Sequence[_Seen]) -> _Step:
        stirs: dict[int, Stir] = {}
        for item in seen:
            stir = stirs.setdefault(item.order.flow.flow_id, Stir())
            stir.evidence[item.order.gate_id] = item.evidence
        nudges = nudge_take(tx, self._batch)
        for nudge in nudges:
            stir = stirs.setdefault(nudge.flow_id, Stir())
            if nudge.phase is None:
                stir.everything = True
            else:
                stir.phases.add(nudge.phase)
                if nudge.is_failure:
                    stir.failures[nudge.phase] += 1
        # What happened comes first; what is due is looked for once nothing happens any more.
        for flow_id, gate_id in [] if stirs else phase_due(tx, self._batch):
            stir = stirs.setdefault(flow_id, Stir())
            if gate_id is not None:
                stir.due.add(gate_id)
        if not stirs:
            return _Step(Advanced(), False, cascade_next_ask(tx))
        known = None if self._known is None else self._remembered
        part = advance(tx, stirs, actor=self._holder, holder=self._holder, known=known)
        return _Step(part, len(nudges) == self._batch, cascade_next_ask(tx))

    def _make(self, order: LookOrder) -> None:
        if self._threads is None:
            self._take(order, self._looked(order))
            return
        future = self._threads.submit(self._looked, order)
        future.add_done_callback(lambda done: self._landed(order, done))

    def _landed(self, order: LookOrder, done: Future[list[Sighting]]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._take(order, done.result())
            self._store.wake([CHANNEL])

    def _take(self, order: LookOrder, sightings: Sequence[Sighting]) -> None:
        seen = {sighting.key: sighting for sighting in sightings}
        self._seen.append(_Seen(order, Evidence(token=order.token, sightings=seen)))

    def _looked(self, order: LookOrder) -> list[Sighting]:
        place = (order.phase, order.processor)
        return list(self._look(self._question(order.flow, order.planned, place, order.since)))

    def _remembered(self, wanted: Wanted) -> dict[str, Sighting] | None:
        """What is known of a gate's data without looking."""
        assert self._known is not None
        book, ask = wanted.book, wanted.ask
        place = (ask.phase, ask.processor or "")
        look = self._question(book.flow, book.planned, place, wanted.since)
        seen = self._known(look)
        return None if seen is None else {sighting.key: sighting for sighting in seen}

    def _question(
        self, flow: Flow, planned: Planned, place: tuple[str, str], since: int | None
    ) -> Look:
        """What to look at; from the code where it is loaded, because JSON holds no functions."""
        phase, processor = place
        code = self._code.get(flow.digest)
        if code is None:
            needs = planned.needs(phase, processor)
        else:
            needs = code.needs(planned.mode.name, phase, processor or None)
        return Look(
            dependencies=[need.dependency for need in needs],
            partition=flow.partition,
            customer=flow.customer_id,
            since=since,
        )
