"""The expander: evaluates the items of new expansions and creates the runs of long lists.

Queries and functions are evaluated outside any transaction, under a lease and a token, like probes;
the transaction that stores the items also creates the first runs. A long list is continued a part
at a time, alternating between expansions, under the lock of the flow: each part is deleted with the
creation of its runs. Safe in any number of replicas. The orchestrator calls `run_once`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import short_repr
from penstock.core.ids import encode
from penstock.core.redact import redact_text
from penstock.db.store import Transactions, Tx
from penstock.flows.items.fan_in import ExpansionRow, ExpansionState
from penstock.flows.items.item_list import InvalidItems, KeyedItem, item_list
from penstock.flows.items.item_runs import item_runs
from penstock.flows.items.sources import ItemQuery, ItemRequest, no_queries
from penstock.flows.items.store.expansions import (
    expansion_advance_many,
    expansion_cancel,
    expansion_due,
    expansion_fail,
    expansion_flow_lock,
    expansion_items_take,
    expansion_lease,
    expansion_postpone,
    expansion_seal,
)
from penstock.flows.items.store.outcomes import expansion_settled
from penstock.flows.plan import FanOut
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import config_defaults, flow_get
from penstock.flows.store.parameters import flow_parameters
from penstock.flows.store.plans import planned, processors_later
from penstock.pipelines.declare.each import EachKind
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.rows import NewRun
from penstock.runs.store.runs import run_insert_many

CHANNEL: Final = "flows"
PER_STEP: Final = 2
"""Maximum number of expansions that one transaction continues; each creates up to a thousand runs.
"""
EVALUATIONS: Final = 20
LEASE_US: Final = 2 * MINUTE
TRIES_MAX: Final = 5
FIRST_DELAY_US: Final = 10 * SECOND
MESSAGE_MAX: Final = 1_000


@dataclass(slots=True)
class ExpandCounts:
    """Counts of one step; `pools` have new runs."""

    runs: int = 0
    evaluations: int = 0
    """Evaluations that began or were stored."""
    pools: set[str] = field(default_factory=set)


class _Evaluation(NamedTuple):
    """A leased evaluation."""

    row: ExpansionRow
    flow: FlowRow
    fan_out: FanOut
    parameters: Mapping[str, Any]
    """Those that the runs of the flow receive."""


class _Evaluated(NamedTuple):
    """The result of an evaluation: the items, a temporary error, or a permanent one."""

    evaluation: _Evaluation
    items: Sequence[KeyedItem] | None = None
    error: str | None = None
    is_permanent: bool = False
    is_without_code: bool = False


class Expander:
    """Evaluates and continues expansions."""

    def __init__(
        self,
        store: Transactions,
        query: ItemQuery = no_queries,
        *,
        actor: str,
        code: Mapping[str, Pipeline],
        threads: Executor | None = None,
    ) -> None:
        self._store = store
        self._query = query
        self._actor = actor
        self._code = code
        self._threads = threads
        self._evaluated: deque[_Evaluated] = deque()

    @property
    def has_results(self) -> bool:
        """Whether evaluated items wait to be stored."""
        return bool(self._evaluated)

    def run_once(self) -> ExpandCounts:
        """Store evaluated items, lease new evaluations, and create the next runs of long lists."""
        counts = ExpandCounts()
        while self._evaluated:
            done = self._evaluated[0]
            self._add(counts, self._store.write(lambda tx: self._settle(tx, done)))  # noqa: B023
            self._evaluated.popleft()
            counts.evaluations += 1
        leased, made = self._store.write(self._step)
        self._add(counts, made)
        counts.evaluations += len(leased)
        for evaluation in leased:
            self._start(evaluation)
        return counts

    def _add(self, counts: ExpandCounts, made: tuple[int, set[str]]) -> None:
        counts.runs += made[0]
        counts.pools |= made[1]

    def _step(self, tx: Tx) -> tuple[list[_Evaluation], tuple[int, set[str]]]:
        due = expansion_due(tx, EVALUATIONS)
        leased = []
        for row in due:
            if row.state == ExpansionState.EVALUATING:
                evaluation = self._lease(tx, row)
                if evaluation is not None:
                    leased.append(evaluation)
        sealed = [row for row in due if row.state == ExpansionState.SEALED][:PER_STEP]
        return leased, self._continue(tx, sealed)

    def _lease(self, tx: Tx, row: ExpansionRow) -> _Evaluation | None:
        flow = flow_get(tx, row.flow_id)
        if flow is None or not flow.is_open:
            expansion_cancel(tx, [row.flow_id])
            return None
        leased = expansion_lease(tx, row, LEASE_US)
        if leased is None:
            return None
        plan = planned(tx, flow.pipeline_key, flow.digest, flow.mode)
        parameters = flow_parameters(tx, [(flow, plan)])[flow.flow_id]
        return _Evaluation(leased, flow, plan.fan_outs[row.phase, row.processor], parameters)

    def _continue(self, tx: Tx, rows: Sequence[ExpansionRow]) -> tuple[int, set[str]]:
        """Create the runs of the next part of each expansion whose flow no other process holds."""
        if not rows:
            return 0, set()
        flows = expansion_flow_lock(tx, sorted({row.flow_id for row in rows}))
        over = [flow_id for flow_id, flow in flows.items() if not flow.is_open]
        if over:  # its processors were completed by reports
            expansion_cancel(tx, over)
        held = [row for row in rows if row.flow_id in flows and flows[row.flow_id].is_open]
        parts = expansion_items_take(tx, held) if held else {}
        made: list[NewRun] = []
        pools: set[str] = set()
        for row in held:
            items = parts.get((row.flow_id, row.processor_key))
            if items is not None:
                runs, pool = self._runs(tx, flows[row.flow_id], row, items)
                made += runs
                pools.add(pool)
        if parts:
            expansion_advance_many(tx, [(*key, len(items)) for key, items in parts.items()])
        if made:
            ids = run_insert_many(tx, made, self._actor)
            assert len(ids) == len(made), f"{len(made)} runs of items, {len(ids)} created"
        return len(made), pools

    def _runs(
        self, tx: Tx, flow: FlowRow, row: ExpansionRow, items: Sequence[KeyedItem]
    ) -> tuple[list[NewRun], str]:
        """Return the runs of items, and their pool."""
        found = processors_later(tx, [flow])()
        configs = config_defaults(tx, [flow.config_id]) if flow.config_id else {}
        most = configs[flow.config_id].max_execution_us if flow.config_id in configs else None
        runs = item_runs(
            flow, row.processor_key, items, row.source, max_execution_us=most,
            is_entry=row.is_entry,
        )  # fmt: skip
        return runs, found[flow.pipeline_key, row.phase, row.processor][1]

    def _start(self, evaluation: _Evaluation) -> None:
        if self._threads is None:
            self._evaluated.append(self._evaluate(evaluation))
            return
        future = self._threads.submit(self._evaluate, evaluation)
        future.add_done_callback(
            lambda done: self._keep(done.result()) if not done.cancelled() else None
        )

    def _keep(self, done: _Evaluated) -> None:
        self._evaluated.append(done)
        self._store.wake([CHANNEL])

    def _evaluate(self, evaluation: _Evaluation) -> _Evaluated:
        """Query or call the source of the items; any error is part of the result."""
        fan_out = evaluation.fan_out
        each = fan_out.each
        try:
            request = _request(evaluation)
            if each.kind is EachKind.FUNCTION:
                body = self._body(evaluation)
                if body is None:
                    text = f"no orchestrator has loaded the code of {each.reference}"
                    return _Evaluated(evaluation, error=text, is_without_code=True)
                values = body(request)
                values = values if isinstance(values, Sequence) else _listed(values, each.title)
            else:
                values = self._query(request)
            return _Evaluated(evaluation, item_list(values, fan_out.item_key, each.title))
        except InvalidItems as error:
            return _Evaluated(evaluation, error=str(error), is_permanent=True)
        except Exception as error:  # a user's function may raise anything
            text = redact_text(f"{each.title}: {type(error).__name__}: {error}")[:MESSAGE_MAX]
            return _Evaluated(evaluation, error=text)

    def _body(self, evaluation: _Evaluation) -> Any:
        code = self._code.get(evaluation.flow.digest)
        if code is None:
            return None
        wanted = (evaluation.row.phase, evaluation.row.processor)
        for processor in code.processors:
            if (processor.phase, processor.name) == wanted and processor.terms.each is not None:
                return processor.terms.each.body
        return None

    def _settle(self, tx: Tx, done: _Evaluated) -> tuple[int, set[str]]:
        """Store the result of an evaluation if its lease is current and its flow is open."""
        row = done.evaluation.row
        if done.is_without_code:
            expansion_postpone(tx, row, done.error or "", FIRST_DELAY_US, counts=False)
            _alert_without_code(tx, done.evaluation, done.error or "")
            return 0, set()
        if done.error is not None and not done.is_permanent and row.tries + 1 < TRIES_MAX:
            expansion_postpone(tx, row, done.error, FIRST_DELAY_US * 2**row.tries)
            return 0, set()
        flow = expansion_flow_lock(tx, [row.flow_id], waits=True).get(row.flow_id)
        if flow is None or not flow.is_open:
            return 0, set()
        if done.error is not None:
            if expansion_fail(tx, row, done.error):
                gate_key = (row.phase, row.processor)
                expansion_settled(tx, flow, gate_key, error=done.error, actor=self._actor)
            return 0, set()
        assert done.items is not None
        first = expansion_seal(tx, row, done.items)
        if first is None:
            return 0, set()
        gate_key = (row.phase, row.processor)
        expansion_settled(tx, flow, gate_key, items=done.items, actor=self._actor)
        runs, pool = self._runs(tx, flow, row, first)
        if runs:
            run_insert_many(tx, runs, self._actor)
        return len(runs), {pool}


def _request(evaluation: _Evaluation) -> ItemRequest:
    row, flow, fan_out, parameters = evaluation
    return ItemRequest(
        pipeline=flow.pipeline,
        phase=row.phase,
        processor=row.processor,
        partition=flow.partition,
        mode=flow.mode,
        customer=flow.customer_id,
        flow_id=encode("flow", flow.flow_id),
        correlation_id=flow.correlation_id,
        parameters=parameters,
        sql=fan_out.each.sql,
        warehouse=fan_out.warehouse,
    )


def _listed(values: Any, source: str) -> list[Any]:
    """Return the values of any iterable, such as a generator or a set, as a list."""
    try:
        return list(values)
    except TypeError:
        raise InvalidItems(
            f"expected {source} to return a list of items, got {short_repr(values)}"
        ) from None


def _alert_without_code(tx: Tx, evaluation: _Evaluation, error: str) -> None:
    flow, row = evaluation.flow, evaluation.row
    alert_open(
        tx,
        NewAlert(
            rule="items_without_code",
            dedupe_key=f"items_without_code:{flow.flow_id}:{row.phase}:{row.processor}",
            severity="HIGH",
            subject_kind="flow",
            subject=flow.flow_id,
            customer_key=flow.customer_key,
            message=f"{flow.pipeline} {flow.partition}: the items of {row.phase}.{row.processor} "
            f"wait: {error}. Start `penstock up` with the module of the pipeline, in the version "
            "that the flow was opened with.",
        ),
    )
