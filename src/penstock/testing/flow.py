"""Run one flow of a pipeline to its end in memory, on virtual time and without a server.

    with FlowTest(nba) as t:
        t.arrive("nba_raw.schedule", rows=8)
        t.arrive("nba_raw.odds", after="90m")
        t.run()
        assert t.decision("predict").verdict == "PROCEED_DEGRADED"

The orchestrator, gates, retries and store (SQLite in memory) are the real ones. Only the data is
simulated, and time advances from one event to the next. Tables that a processor `produces` arrive
when it completes. Processor functions are called only with `call=True`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from penstock.access.store.registry import customer_ensure_many
from penstock.core.clock import Micros, iso, parse_duration, parse_iso
from penstock.core.error_classification import classify
from penstock.core.errors import InvalidInput
from penstock.core.naming import PipelineKey
from penstock.core.stored_json import loads
from penstock.db.store import Store, Tx
from penstock.entities.changed import ChangedEntities
from penstock.entities.report import CHANGED
from penstock.entities.store import inputs_of_flow
from penstock.flows.gates.rows import DecisionFilter
from penstock.flows.gates.store.gates import decision_list
from penstock.flows.gates.verdict import Decision
from penstock.flows.rows import FlowRow
from penstock.flows.store.completions import flow_event_put_many
from penstock.flows.store.create import FlowOpening, flow_open_many
from penstock.flows.store.flows import phases_of
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.modes import default_mode, partition_of
from penstock.pipelines.partition import check_partition
from penstock.testing.clock import VirtualClock
from penstock.testing.drive import STEPS_MAX, FlowDriver, FlowStuck
from penstock.testing.fake_endpoint import replied
from penstock.testing.fake_workers import ProcessorBehavior
from penstock.testing.flow_results import FlowResults
from penstock.testing.tables import TableContent
from penstock.worker.context import RunContext
from penstock.worker.endpoints.exchange import FakeReply
from penstock.worker.outcome import AttemptOutcome, outcome_of_error, outcome_of_value

__all__ = ["FlowStuck", "FlowTest"]

# Decisions are in the results. Without a handler Python would also print their warnings.
logging.getLogger("penstock.flows").addHandler(logging.NullHandler())

START: Final = "2025-11-15T15:30:00Z"
CUSTOMER: Final = "test"


class FlowTest(FlowResults):
    """One flow of a pipeline, its data and its results; a context manager."""

    def __init__(
        self,
        pipeline: Pipeline | Sequence[Pipeline],
        *,
        mode: str | None = None,
        partition: str | None = None,
        start: str = START,
        warehouses: Mapping[str, str] | None = None,
        call: bool = False,
        parameters: str | None = None,
        customer: str = CUSTOMER,
    ) -> None:
        """Prepare a flow; the first `run` opens it.

        pipeline: the pipeline to test; of several, the first, and those to which its processors
        submit runs or that they trigger. mode: the pipeline's default if None. start: virtual start
        time, ISO 8601. partition: defaults to the partition of the mode at that time. warehouses:
        addresses by the pipeline's names for them; gates then probe real data instead of the tables
        set with `arrive`. call: call the processors' functions; without it they succeed without
        being called. parameters: parameters of the flow, as JSON. customer: customer of the flow;
        needs with a customer column see only its rows.
        """
        pipelines = [pipeline] if isinstance(pipeline, Pipeline) else list(pipeline)
        pipeline = pipelines[0]
        mode = default_mode(pipeline.modes).name if mode is None else mode
        if mode not in pipeline.modes:
            raise InvalidInput("mode", f"one of {', '.join(sorted(pipeline.modes))}", mode)
        self.pipeline = pipeline
        self.customer = customer
        self.mode = mode
        self.clock = VirtualClock(parse_iso(start))
        rule = pipeline.terms.rule
        self.partition = (
            partition_of(
                pipeline.modes[mode], now=self.clock.now(), timezone=pipeline.timezone, rule=rule
            )
            if partition is None
            else check_partition(rule, partition)
        )
        self.drive = FlowDriver(pipelines, self.clock, warehouses=warehouses, is_called=call)
        self.store = self.drive.store
        self.client = self.drive.client
        self._tables, self._workers = self.drive.tables, self.drive.workers
        self._parameters = parameters
        self._began: Micros | None = None

    def __enter__(self) -> FlowTest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the services and the store."""
        self.drive.close()

    def arrive(
        self,
        table: str,
        rows: int | None = None,
        *,
        after: str | None = None,
        days: int | None = None,
        filled: float = 1.0,
        failed: tuple[str, ...] = (),
        age: str | None = None,
        customer: str | None = None,
    ) -> None:
        """Make data arrive, now or `after` a delay; without `rows`, as many rows as expected.

        days: this many days of history instead of rows. filled: share of non-null cells in required
        columns. failed: failing checks. age: age of the newest row. customer: owner; None for all.
        """
        at = self._at(after)
        newest = None if age is None else at - parse_duration(age, "age")
        self._tables.arrive(
            table,
            TableContent(
                at=at,
                rows=rows,
                not_null_share=filled,
                failed_checks=failed,
                newest_us=newest,
                days=days,
                customer=customer,
            ),
        )

    def lose(self, table: str, *, after: str | None = None, error: str | None = None) -> None:
        """Empty a table or, with an error, make its probe fail."""
        self._tables.arrive(table, TableContent(at=self._at(after), rows=0, error=error))

    def expect(self, table: str, rows: int) -> None:
        """Set the result of a query for the expected rows."""
        self._tables.expect(table, rows)

    def fail(
        self,
        processor: str,
        times: int = 1,
        error: str | BaseException = "TRANSIENT_NETWORK",
        *,
        item: str | None = None,
    ) -> None:
        """Make the next attempts of a processor fail with an error type or an exception.

        item: key of an item; only its attempts fail.
        """
        if isinstance(error, BaseException):
            outcome = outcome_of_error(error)._replace(error_type=classify(error))
        else:
            outcome = AttemptOutcome(error_type=error)
        behavior = self._behavior(processor)
        if item is not None:
            behavior.item_failures.setdefault(item, []).extend([outcome] * times)
            return
        behavior.failures += [outcome] * times

    def set_items(self, processor: str, items: Sequence[Any]) -> None:
        """Set the items that the query of a processor lists.

        A function lists its own items; `set_result` sets the list that an earlier processor
        returns.
        """
        self._behavior(processor)
        self.drive.items[processor] = list(items)

    def set_duration(self, processor: str, duration: str) -> None:
        """Set how long a processor takes; the default is a minute."""
        self._behavior(processor).takes_us = parse_duration(duration, "duration")

    def set_result(self, processor: str, value: Callable[[RunContext], Any] | str) -> None:
        """Replace a processor's function, or set the status it ends with (PARTIAL_SUCCESS)."""
        if isinstance(value, str):
            self._behavior(processor).status = value
            return
        self._behavior(processor).call = lambda run: _called(value, run)

    def set_entities(self, processor: str, **ids: Sequence[str | int]) -> None:
        """Set which entities a processor reports: `t.set_entities("rosters", players=[7])`.

        Without ids, it reports that nothing changed.
        """
        self.set_result(processor, lambda _: {CHANGED: {kind: list(i) for kind, i in ids.items()}})

    def changed(self, processor: str) -> ChangedEntities:
        """Return the input of an incremental processor in the newest generation."""
        flow = self.flow
        found = self.store.read(lambda tx: inputs_of_flow(tx, flow.flow_id))
        for (_, name), given in found.items():
            if name == processor:
                return given
        raise AssertionError(
            f"{processor} is not incremental, or has not started:\n{self.report()}"
        )

    def next_flow(self, partition: str) -> FlowTest:
        """Continue with a flow of another partition; the next `run` opens it."""
        self.partition = check_partition(self.pipeline.terms.rule, partition)
        self._began = None
        return self

    def set_reply(self, processor: str, respond: FakeReply) -> None:
        """Set the fake endpoint of an HTTP processor.

        respond: takes the body of the request and returns a status and a body, which are handled
        like a real response; 202 fails, because nothing reports later.
        """
        self._behavior(processor).call = lambda run: replied(run, respond)

    def at(self, after: str, call: Callable[[], None]) -> None:
        """Call a function after a delay in virtual time."""
        self.drive.at(self._at(after), call)

    def run(self, *, upto: str | None = None, limit: str = "3d") -> FlowTest:
        """Advance time until the flow and everything it started have ended, or by `upto`.

        Raises FlowStuck if it has not ended within `limit` of virtual time.
        """
        self._open()
        now = self.clock.now()
        end = now + parse_duration(limit if upto is None else upto, "upto")
        for _ in range(STEPS_MAX):
            self.drive.settle()
            if upto is None and self._is_over():
                return self
            due = self.drive.next_at()
            if due is None or due > end:
                if upto is None:
                    raise FlowStuck(f"the flow has not ended within {limit}:\n{self.report()}")
                self.clock.advance_to(end)
                return self
            self.clock.advance_to(due)
        raise FlowStuck(f"no end after {STEPS_MAX:,} steps:\n{self.report()}")

    @property
    def elapsed(self) -> Micros:
        """Virtual time since the flow opened, in microseconds."""
        return 0 if self._began is None else self.clock.now() - self._began

    @property
    def errors(self) -> Sequence[str]:
        """Exceptions raised by processor functions, with tracebacks, in order."""
        return self._workers.errors

    def report(self) -> str:
        """Return a report of decisions, the state of every phase, and exceptions of functions."""
        return "\n".join([*_story_lines(self.store, self._number()[0], self.flows), *self.errors])

    def _open(self) -> None:
        if self._began is not None:
            return
        self._began = self.clock.now()
        number, digest = self._number()
        opening = FlowOpening(
            customer_key=self.store.write(
                lambda tx: customer_ensure_many(tx, [self.customer])[self.customer]
            ),
            pipeline_key=PipelineKey(number),
            digest=digest,
            mode=self.mode,
            partition=self.partition,
            source="manual" if self.mode == "manual" else "scheduler",
            correlation_id="test",
            opened_by="test",
            parameters=self._parameters,
        )
        self.store.write(lambda tx: _opened(tx, opening))

    def _is_over(self) -> bool:
        """Whether every generation has ended and nothing is running, pending or to arrive."""
        return self.drive.is_idle and all(not flow.is_open for flow in self.flows)

    def _behavior(self, processor: str) -> ProcessorBehavior:
        known = {p.name for p in self.pipeline.processors}
        if processor not in known:
            raise InvalidInput("processor", f"one of {', '.join(sorted(known))}", processor)
        return self._workers.behaviors.setdefault(processor, ProcessorBehavior())

    def _at(self, after: str | None) -> Micros:
        base = self._began if self._began is not None else self.clock.now()
        return self.clock.now() if after is None else base + parse_duration(after, "after")


def _opened(tx: Tx, opening: FlowOpening) -> None:
    (flow_id,) = flow_open_many(tx, [opening])
    assert flow_id is not None
    flow_event_put_many(tx, [(flow_id, opening.customer_key, None, False)])


def _called(function: Callable[[RunContext], Any], run: RunContext) -> AttemptOutcome:
    try:
        return outcome_of_value(run, function(run))
    except Exception as error:
        return outcome_of_error(error)


def _story_lines(store: Store, pipeline: int, flows: Sequence[FlowRow]) -> Iterator[str]:
    wanted = DecisionFilter(pipeline=pipeline, limit=200)
    for row in reversed(store.read(lambda tx: decision_list(tx, wanted))):
        decision = loads(Decision, row.decision)
        why = " ".join((*decision.reasons, *decision.warnings))
        yield f"{iso(row.at)} {row.phase}: {row.verdict} {why}"
    phases = store.read(lambda tx: phases_of(tx, [flow.flow_id for flow in flows]))
    for flow in flows:
        states = ", ".join(f"{row.phase} {row.state}" for row in phases[flow.flow_id])
        yield f"generation {flow.generation}: {flow.state} ({states})"
