"""Diagnosis use cases: explain a flow, find why a flow, run or config waits, trace a cause.

Each use case reads in one transaction. `flows.explain.explain`, `flows.explain.why` and
`flows.explain.trace` produce the text, so that Python, the command line, the API and the UI show
the same sentences.
"""

from __future__ import annotations

from typing import Annotated

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.registry import customer_get
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.fields import did_you_mean
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.core.records.parameters import (
    ConfigId,
    Customer,
    CustomerOrDefault,
    FlowId,
    PartitionFilter,
    PipelineFilter,
    PipelineName,
    RunId,
)
from penstock.core.records.record import Meta, Wire
from penstock.db.store import Transactions, Tx
from penstock.entities.store import changes_of_entity
from penstock.flows.explain.entity import parse_entity
from penstock.flows.explain.explain import (
    explain,
    explain_missing_flow,
    explain_without_flows,
)
from penstock.flows.explain.facts import RunFact
from penstock.flows.explain.from_rows import (
    cause_tree_record,
    entity_flow_record,
    explanation_record,
    trace_record,
)
from penstock.flows.explain.records import CauseTree, EntityTrail, FlowExplanation, FlowTrace
from penstock.flows.explain.store.configs import config_fact
from penstock.flows.explain.store.customers import customer_fact
from penstock.flows.explain.store.entities import entity_flow_facts
from penstock.flows.explain.store.load import FactLoader
from penstock.flows.explain.store.reads import EXECUTIONS_MAX
from penstock.flows.explain.times import LocalClock
from penstock.flows.explain.trace import trace
from penstock.flows.explain.trace_outside import OutsideFlows
from penstock.flows.explain.why import why_flow, why_run
from penstock.flows.explain.why_config import why_config
from penstock.flows.explain.why_customer import why_customer
from penstock.flows.rows import FlowFilter, FlowRow
from penstock.flows.store.flows import flow_get, flow_list
from penstock.pipelines.partition import check_partition, partition_rule_of
from penstock.runs.store.runs import run_get, run_live_retry
from penstock.schedules.store.configs import config_get, config_list
from penstock.tracking.rows import TracedIds
from penstock.tracking.store.causes import dead_letters_of, messages_of, open_deliveries, traced_ids
from penstock.tracking.store.executions import executions_outside

__all__ = ["Diagnostics"]

TRACE_MAX = 50
"""Maximum number of flows of one cause in a trace; the newest are kept."""


CONFIGS_MAX = 3
"""Maximum number of configs with which a missing flow is suggested."""

LIVE_MAX = 20
"""Maximum number of live runs outside flows in a trace; the newest are kept."""

CHANGES_MAX = 1_000
"""Maximum number of reports of one entity that are read; the newest are kept."""


_ENTITY = Meta(description="Kind and id of an entity, such as `players:1630567`.", max_length=300)
_FLOWS = Meta(description="Maximum number of flows to return.", ge=1, le=TRACE_MAX)
_CAUSE = Meta(
    description="Correlation id, or the id of a flow, run, message or dead letter, or the id that "
    "another system gave to a report or message.",
    max_length=500,
)
_PARTITION = Meta(description="Partition of the data, such as `2025-12-31`.", max_length=500)
Mode = Annotated[
    Annotated[str, Meta(max_length=64)] | None,
    Meta(description="Mode of the flow; any mode when omitted."),
]
Generation = Annotated[
    Annotated[int, Meta(ge=1, lt=2**31)] | None,
    Meta(description="Generation of the flow; the newest when omitted."),
]
Phase = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Meta(description="Explain only this phase; the whole flow when omitted."),
]


class Diagnostics:
    """Use cases that explain flows, runs and configs."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def explain(
        self,
        pipeline: PipelineName,
        partition: Annotated[str, _PARTITION],
        *,
        customer: CustomerOrDefault = None,
        mode: Mode = None,
        generation: Generation = None,
    ) -> FlowExplanation:
        """Explain the newest flow of a partition. If there is none, explain what would start it."""

        def body(tx: Tx) -> FlowExplanation:
            info = self._names.pipeline(pipeline, "pipeline", tx)
            customer_id = self._names.customer_or_default(customer)
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
            check_partition(partition_rule_of(info.definition), partition)
            if info.has_flow:
                configs = _active_configs(tx, info.pipeline_key, number)
                nothing = explain_missing_flow(
                    pipeline, partition, customer_id, mode, configs=configs
                )
            else:
                nothing = explain_without_flows(
                    pipeline, partition, customer_id, is_customer_known=number is not None
                )
            return explanation_record(None, nothing, tx.now())

        return self._store.read(body)

    def explain_flow(self, flow_id: FlowId) -> FlowExplanation:
        """Explain each phase of a flow: decision, time, reason, evidence and what it waits for."""
        return self._store.read(lambda tx: self._explained(tx, self._flow(tx, flow_id)))

    def why_flow(self, flow_id: FlowId, phase: Phase = None) -> CauseTree:
        """Explain why a flow, or one of its phases, has not ended, as a tree of causes."""

        def body(tx: Tx) -> CauseTree:
            fact = FactLoader(tx, self._names).flow(self._flow(tx, flow_id))
            known = [one.name for one in fact.phases]
            if phase is not None and phase not in known:
                expected = f"one of {', '.join(known)}"
                raise InvalidInput("phase", expected, phase, did_you_mean(phase, known))
            now = tx.now()
            return cause_tree_record(why_flow(fact, now, phase), now, fact.timezone)

        return self._store.read(body)

    def why_run(self, run_id: RunId) -> CauseTree:
        """Explain why a run has not started or ended, as a tree of causes."""
        number = decode_or_not_found("run", "run", run_id)

        def body(tx: Tx) -> CauseTree:
            run = run_get(tx, number, self._names.customer_key(tx, None))
            if run is None:
                raise NotFound("run", encode("run", number))
            now = tx.now()
            loader = FactLoader(tx, self._names)
            owner = customer_get(tx, run.customer_id)
            later = None if owner is None else run_live_retry(tx, run, owner)
            retry = None if later is None else loader.run(later)
            cause = why_run(loader.run(run), LocalClock(now), retry)
            return cause_tree_record(cause, now, "UTC")

        return self._store.read(body)

    def why_config(self, config_id: ConfigId) -> CauseTree:
        """Explain why a config starts no runs, as a tree of causes."""
        number = decode_or_not_found("cfg", "config", config_id)

        def body(tx: Tx) -> CauseTree:
            config = config_get(tx, number, self._names.customer_key(tx, None))
            if config is None or config.deleted_at is not None:
                raise NotFound("config", encode("cfg", number))
            now = tx.now()
            local = LocalClock(now, config.timezone)
            cause = why_config(config_fact(tx, self._names, config), local)
            return cause_tree_record(cause, now, config.timezone)

        return self._store.read(body)

    def why_customer(self, customer: Customer) -> CauseTree:
        """Explain why a customer's work makes no progress, as a tree of causes."""

        def body(tx: Tx) -> CauseTree:
            number = self._names.customer_key(tx, customer)
            assert number is not None, "a named customer has a key"
            now = tx.now()
            fact = customer_fact(tx, self._names, customer, number)
            return cause_tree_record(why_customer(fact, LocalClock(now)), now, "UTC")

        return self._store.read(body)

    def trace(self, cause: Annotated[str, Wire("correlation_id"), _CAUSE]) -> FlowTrace:
        """Return everything that one cause started, and the expected steps that have not happened.

        The cause is named by its correlation id or by any id that belongs to it.
        """

        def body(tx: Tx) -> FlowTrace:
            number = self._names.customer_key(tx, None)
            ids = traced_ids(tx, cause, number)
            chosen = [
                flow
                for flow_id in ids.flows[-TRACE_MAX:]
                if (flow := flow_get(tx, flow_id, number)) is not None
            ]
            finder = FactLoader(tx, self._names)
            facts = tuple(finder.flow(flow) for flow in chosen)
            runs: list[RunFact] = [run for flow in chosen for run in finder.executions(flow)]
            now = tx.now()
            gone = set(ids.flows) - {flow.flow_id for flow in chosen}
            traced = trace(facts, runs, now, _outside(tx, finder, ids, number, gone))
            return trace_record(ids.correlation_id, facts, traced, now)

        return self._store.read(body)

    def entity(
        self,
        entity: Annotated[str, _ENTITY],
        *,
        partition: PartitionFilter = None,
        pipeline: PipelineFilter = None,
        customer: CustomerOrDefault = None,
        limit: Annotated[int, _FLOWS] = 20,
    ) -> EntityTrail:
        """Return how far the changes of an entity have progressed, by flow and phase."""
        kind, name = parse_entity(entity)
        check_limit(limit, "limit", TRACE_MAX)

        def body(tx: Tx) -> EntityTrail:
            customer_id = self._names.customer_or_default(customer)
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            try:
                number = self._names.customer_key(tx, customer_id)
            except NotFound:
                if customer is not None:
                    raise
                number = None
            found = (
                []
                if number is None
                else changes_of_entity(
                    tx,
                    number,
                    (kind, name),
                    partition=partition,
                    pipeline_key=None if info is None else info.pipeline_key,
                    n=CHANGES_MAX,
                )
            )
            facts = entity_flow_facts(tx, found, kind, limit + 1)
            return EntityTrail(
                entity=entity,
                customer=customer_id,
                flows=[entity_flow_record(fact, entity) for fact in facts[:limit]],
                has_more=len(facts) > limit or len(found) == CHANGES_MAX,
            )

        return self._store.read(body)

    def _explained(self, tx: Tx, flow: FlowRow) -> FlowExplanation:
        fact = FactLoader(tx, self._names).flow(flow)
        now = tx.now()
        return explanation_record(fact, explain(fact, now), now)

    def _flow(self, tx: Tx, flow_id: str) -> FlowRow:
        number = decode_or_not_found("flow", "flow", flow_id)
        found = flow_get(tx, number, self._names.customer_key(tx, None))
        if found is None:
            raise NotFound("flow", encode("flow", number))
        return found


def _outside(
    tx: Tx,
    finder: FactLoader,
    ids: TracedIds,
    customer_key: CustomerKey | None,
    gone: set[int],
) -> OutsideFlows:
    """Load what a cause started outside flows, and the executions of deleted flows."""
    live = [run_get(tx, run_id, customer_key) for run_id in ids.live_runs[-LIVE_MAX:]]
    return OutsideFlows(
        messages=messages_of(tx, ids),
        executions=executions_outside(tx, ids, customer_key, gone=gone, limit=EXECUTIONS_MAX),
        open_deliveries=open_deliveries(tx, ids, customer_key),
        live_runs=finder.runs([run for run in live if run is not None and run.finished_at is None]),
        dead_letters=dead_letters_of(tx, ids, customer_key),
    )


def _active_configs(
    tx: Tx, pipeline_key: PipelineKey, customer_key: CustomerKey | None
) -> list[str]:
    """Return the first active configs of a customer and pipeline."""
    if customer_key is None:
        return []
    found = config_list(
        tx,
        customer_key=customer_key,
        pipeline_key=pipeline_key,
        is_active=True,
        limit=CONFIGS_MAX,
    )
    return [encode("cfg", one.config_id) for one in found]


def _find(
    tx: Tx,
    customer_key: CustomerKey,
    pipeline_key: PipelineKey,
    partition: str,
    which: tuple[str | None, int | None],
) -> FlowRow | None:
    """Return the newest flow of a partition, optionally of one mode or generation."""
    mode, generation = which
    limit = 1 if generation is None else 1_000
    wanted = FlowFilter(
        customer=customer_key, pipeline=pipeline_key, partition=partition, mode=mode, limit=limit
    )
    found = flow_list(tx, wanted)
    return next((flow for flow in found if generation in (None, flow.generation)), None)
