"""Diagnosis use cases: explain a flow, find why a flow or run has not ended, trace a cause.

Each use case reads in one transaction. `flows.explain.explain`, `flows.explain.why` and
`flows.explain.trace` produce the text, so that Python, the command line, the API and the UI show
the same sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.access.store.names import NameResolver
from penstock.core.clock import Micros
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Transactions, Tx
from penstock.flows.explain.explain import Explanation, explain, explain_missing_flow
from penstock.flows.explain.facts import FlowFact, RunFact
from penstock.flows.explain.store.load import FactLoader
from penstock.flows.explain.store.reads import flows_executed_for
from penstock.flows.explain.times import LocalClock
from penstock.flows.explain.trace import Trace, trace
from penstock.flows.explain.why import Cause, why_flow, why_run
from penstock.flows.rows import Flow, FlowFilter
from penstock.flows.store.flows import flow_for_correlation, flow_get, flow_list
from penstock.runs.store.runs import run_get

__all__ = ["CauseTree", "Diagnostics", "FlowExplanation", "FlowFilter", "TracedCause"]

TRACE_MAX = 50
"""Maximum number of flows of one cause in a trace; the newest are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowExplanation:
    """An explanation of a flow; `flow` is None if the partition has none."""

    flow: FlowFact | None
    explanation: Explanation
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseTree:
    """A tree of causes, with the time and time zone its sentences refer to."""

    cause: Cause
    now: Micros
    timezone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCause:
    """The path of one cause through all its flows."""

    correlation_id: str
    flows: tuple[FlowFact, ...]
    traced: Trace
    now: Micros


class Diagnostics:
    """Use cases that explain flows and runs."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def explain(
        self,
        pipeline: str,
        partition: str,
        *,
        customer: str | None = None,
        mode: str | None = None,
        generation: int | None = None,
    ) -> FlowExplanation:
        """Explain the newest flow of a partition, and name older flows that are still open.

        If the partition has no flow, the explanation says so and names the command that starts one.
        """

        def body(tx: Tx) -> FlowExplanation:
            info = self._names.pipeline(pipeline, "pipeline", tx)
            customer_id = customer or self._names.default_customer
            try:
                number = self._names.customer_key(tx, customer_id)
            except NotFound:
                if customer is not None:
                    raise
                number = None
            found = None
            if number is not None:
                found = _find(tx, number, info.pipeline_key, partition, (mode, generation))
            if found is not None:
                return self._explained(tx, found)
            if generation is not None:
                raise NotFound("flow", f"{pipeline} {partition} generation {generation}")
            nothing = explain_missing_flow(pipeline, partition, customer_id, mode)
            return FlowExplanation(flow=None, explanation=nothing, now=tx.now())

        return self._store.read(body)

    def explain_flow(self, flow_id: int, customer: str | None = None) -> FlowExplanation:
        """Explain one flow."""
        return self._store.read(lambda tx: self._explained(tx, self._flow(tx, flow_id, customer)))

    def why_flow(
        self, flow_id: int, phase: str | None = None, customer: str | None = None
    ) -> CauseTree:
        """Return why a flow, or one of its phases, has not ended."""

        def body(tx: Tx) -> CauseTree:
            fact = FactLoader(tx, self._names).flow(self._flow(tx, flow_id, customer))
            known = [one.name for one in fact.phases]
            if phase is not None and phase not in known:
                raise InvalidInput("phase", f"one of {', '.join(known)}", phase)
            now = tx.now()
            return CauseTree(cause=why_flow(fact, now, phase), now=now, timezone=fact.timezone)

        return self._store.read(body)

    def why_run(self, run_id: int, customer: str | None = None) -> CauseTree:
        """Return why a run has not started or has not ended."""

        def body(tx: Tx) -> CauseTree:
            run = run_get(tx, run_id, self._names.customer_key(tx, customer))
            if run is None:
                raise NotFound("run", encode("run", run_id))
            now = tx.now()
            fact = FactLoader(tx, self._names).run(run)
            return CauseTree(cause=why_run(fact, LocalClock(now)), now=now, timezone="UTC")

        return self._store.read(body)

    def trace(self, cause: str, customer: str | None = None) -> TracedCause:
        """Return the whole path of a cause, given its correlation id or the id of a flow or run."""

        def body(tx: Tx) -> TracedCause:
            number = self._names.customer_key(tx, customer)
            correlation_id = self._correlation(tx, cause, number)
            flows = flow_for_correlation(tx, correlation_id, number)
            known = {flow.flow_id for flow in flows}
            for flow_id in flows_executed_for(tx, correlation_id, number):
                more = None if flow_id in known else flow_get(tx, flow_id, number)
                flows += [] if more is None else [more]
            if not flows:
                raise NotFound("trace", cause)
            finder = FactLoader(tx, self._names)
            chosen = sorted(flows, key=lambda flow: flow.flow_id)[-TRACE_MAX:]
            facts = tuple(finder.flow(flow) for flow in chosen)
            runs: list[RunFact] = [run for flow in chosen for run in finder.executions(flow)]
            now = tx.now()
            return TracedCause(
                correlation_id=correlation_id,
                flows=facts,
                traced=trace(facts, runs, now),
                now=now,
            )

        return self._store.read(body)

    def _explained(self, tx: Tx, flow: Flow) -> FlowExplanation:
        fact = FactLoader(tx, self._names).flow(flow)
        now = tx.now()
        return FlowExplanation(flow=fact, explanation=explain(fact, now), now=now)

    def _flow(self, tx: Tx, flow_id: int, customer: str | None) -> Flow:
        found = flow_get(tx, flow_id, self._names.customer_key(tx, customer))
        if found is None:
            raise NotFound("flow", encode("flow", flow_id))
        return found

    def _correlation(self, tx: Tx, cause: str, customer_key: CustomerKey | None) -> str:
        """Return the correlation id for a correlation, flow or run id."""
        kind = cause.partition("_")[0]
        if kind not in ("flow", "run"):
            return cause
        try:
            number = decode(kind, cause)
        except InvalidInput:
            return cause
        if kind == "flow":
            flow = flow_get(tx, number, customer_key)
            if flow is None:
                raise NotFound("flow", cause)
            return flow.correlation_id
        run = run_get(tx, number, customer_key)
        if run is None:
            raise NotFound("run", cause)
        return run.correlation_id or cause


def _find(
    tx: Tx,
    customer_key: CustomerKey,
    pipeline_key: PipelineKey,
    partition: str,
    which: tuple[str | None, int | None],
) -> Flow | None:
    """Return the newest flow of a partition, optionally of one mode or generation."""
    mode, generation = which
    limit = 1 if generation is None else 1_000
    wanted = FlowFilter(
        customer=customer_key, pipeline=pipeline_key, partition=partition, mode=mode, limit=limit
    )
    found = flow_list(tx, wanted)
    return next((flow for flow in found if generation in (None, flow.generation)), None)
