"""Metrics of a process, counted from its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from penstock.audit.telemetry import (
    CompletedRuns,
    Event,
    Events,
    FlowEnded,
    GateDecided,
    MessageHandled,
    PhaseEnded,
    PushAccepted,
    PushPosted,
    PushRefused,
    PushServed,
    QuotaHit,
    ReplicaRead,
    RequestSent,
    RunEnded,
    RunRefused,
    RunsEnded,
    ServiceError,
    SinkFailed,
    SlotLeaseLost,
    SlotTaken,
    Swept,
    Ticked,
)
from penstock.core.clock import SECOND
from penstock.telemetry.catalog import LONG, PROCESS, DeclaredMetric
from penstock.telemetry.processor_names import NameOf
from penstock.telemetry.tally import Distribution, Family, Tally

STARTS: Final = ("PROCEED", "PROCEED_DEGRADED")


class _RunSeries:
    """Counts of a processor's runs, per customer if metrics are by customer."""

    __slots__ = ("completed", "errors", "outcomes", "records", "seconds", "waits")

    def __init__(self) -> None:
        self.completed = 0
        self.outcomes: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.seconds = Distribution(LONG)
        self.waits = Distribution(LONG)
        self.records = 0

    def count_completed(self, runs: CompletedRuns) -> None:
        """Count runs that completed."""
        self.completed += len(runs.processor_key)
        seconds = [one for one in runs.duration_us if one is not None]
        self.seconds.observe_all(seconds, SECOND)
        self.waits.observe_all(runs.waited_us, SECOND)
        self.records += sum(filter(None, runs.records))

    def count_other(self, event: RunEnded) -> None:
        """Count a run that did not complete."""
        outcome = _outcome(event)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if event.error_type is not None:
            self.errors[event.error_type] = self.errors.get(event.error_type, 0) + 1
        if event.duration_us is not None:
            self.seconds.observe(event.duration_us / SECOND)
        self.waits.observe(event.waited_us / SECOND)
        self.records += event.records or 0


class ProcessMetrics(Tally):
    """The metrics of a process.

    Runs end tens of thousands of times a second: they are counted by the key of their processor,
    whose name is looked up when the metrics are read.
    """

    def __init__(
        self,
        name_of: NameOf,
        *,
        more: Sequence[DeclaredMetric] = (),
        by_customer: bool = False,
    ) -> None:
        super().__init__((*PROCESS, *more), has_customers=by_customer)
        self._by_customer = by_customer
        self._name_of = name_of
        self._runs: dict[tuple[int, str], _RunSeries] = {}
        self._handlers: dict[type[Event], Callable[..., None]] = {
            RunsEnded: self._runs_ended,
            RunRefused: self._run_refused,
            FlowEnded: self._flow_ended,
            PhaseEnded: self._phase_ended,
            GateDecided: self._gate_decided,
            Ticked: self._ticked,
            Swept: self._swept,
            SlotTaken: self._slot_taken,
            SlotLeaseLost: self._slot_lost,
            QuotaHit: self._quota_hit,
            PushPosted: self._push_posted,
            PushAccepted: self._push_accepted,
            PushRefused: self._push_refused,
            RequestSent: self._request_sent,
            MessageHandled: self._message_handled,
            PushServed: self._push_served,
            SinkFailed: self._sink_failed,
            ServiceError: self._service_error,
            ReplicaRead: self._replica_read,
        }

    def subscribe(self, events: Events) -> Callable[[], None]:
        """Count the events of a stream; return a function that stops counting."""
        # One subscription per kind, so that an event reaches its counter directly.
        ends = [events.subscribe(count, [kind]) for kind, count in self._handlers.items()]

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    def registry(self) -> CollectorRegistry:
        """Return a registry with these metrics, to which others may be added."""
        made = CollectorRegistry()
        made.register(self)
        return made

    def collect(self) -> Iterator[Family]:
        """Yield every family with its samples."""
        self._fold_runs()
        yield from super().collect()

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self.registry())

    # -- runs ----------------------------------------------------------------------------------

    def _runs_ended(self, event: RunsEnded) -> None:
        done = event.completed
        with self.lock:
            for key, columns in self._by_series(done):
                self._series(*key).count_completed(columns)
            for one in event.others:
                self._series(one.processor_key, one.customer_id).count_other(one)

    def _by_series(self, done: CompletedRuns) -> Iterable[tuple[tuple[int, str], CompletedRuns]]:
        """Split completed runs by series; most batches have one processor."""
        processors = done.processor_key
        if not processors:
            return ()
        is_one = processors.count(processors[0]) == len(processors)
        if is_one and not self._by_customer:
            return (((processors[0], ""), done),)
        split: dict[tuple[int, str], list[Any]] = {}
        for row in zip(*done, strict=True):
            split.setdefault((row[0], row[1] if self._by_customer else ""), []).append(row)
        return ((key, CompletedRuns(*zip(*rows, strict=True))) for key, rows in split.items())

    def _series(self, processor: int, customer: str) -> _RunSeries:
        """Return the counts of a processor; the caller holds the lock."""
        key = (processor, customer if self._by_customer else "")
        series = self._runs.get(key)
        if series is None:
            series = self._runs[key] = _RunSeries()
        return series

    def _fold_runs(self) -> None:
        """Add the counts of runs to the metrics, under the names of their processors."""
        with self.lock:
            runs, self._runs = self._runs, {}
        for (key, customer), series in runs.items():
            name = self._name_of(key)
            labels = (name.pipeline, name.processor)
            done = {"completed": series.completed} if series.completed else {}
            for outcome, n in (done | series.outcomes).items():
                self.inc("penstock_run_ends_total", *labels, outcome, by=n, customer=customer)
            for error_type, n in series.errors.items():
                self.inc("penstock_run_errors_total", *labels, error_type, by=n, customer=customer)
            if series.records:
                self.inc("penstock_run_records_total", *labels, by=series.records)
            with self.lock:
                self.histogram("penstock_run_seconds", labels, customer).add(series.seconds)
                waits = self.histogram("penstock_run_wait_seconds", labels[:1], customer)
                waits.add(series.waits)

    def _run_refused(self, _: RunRefused) -> None:
        self.inc("penstock_run_results_refused_total")

    # -- flows ---------------------------------------------------------------------------------

    def _flow_ended(self, event: FlowEnded) -> None:
        labels, customer = (event.pipeline, event.mode), event.customer_id
        self.inc("penstock_flow_ends_total", *labels, event.state, customer=customer)
        seconds = max(0, event.ended_at - event.started_at) / SECOND
        self.observe("penstock_flow_seconds", *labels, value=seconds, customer=customer)

    def _phase_ended(self, event: PhaseEnded) -> None:
        labels = (event.pipeline, event.phase)
        self.inc("penstock_phase_ends_total", *labels, event.state)
        self.inc("penstock_phase_processors_expected_total", *labels, by=event.expected)
        self.inc("penstock_phase_processors_completed_total", *labels, by=event.completed)
        if event.started_at is not None:
            seconds = max(0, event.ended_at - event.started_at) / SECOND
            self.observe("penstock_phase_seconds", *labels, value=seconds)

    def _gate_decided(self, event: GateDecided) -> None:
        labels = (event.pipeline, event.phase)
        self.inc("penstock_gate_decisions_total", *labels, event.verdict)
        if event.verdict in STARTS:
            self.inc("penstock_gate_triggers_total", event.pipeline, event.source)
        if event.probed_us:
            self.observe("penstock_gate_seconds", event.pipeline, value=event.probed_us / SECOND)
        if event.scanned_bytes:
            self.inc("penstock_gate_scanned_bytes_total", event.pipeline, by=event.scanned_bytes)
        self.set("penstock_gate_completeness_ratio", *labels, value=event.completeness / 100)
        self.set("penstock_gate_quality_ratio", *labels, value=event.quality)
        for kind, (checked, missing) in event.checks.items():
            self.inc("penstock_dependency_checks_total", *labels, kind, by=checked)
            self.inc("penstock_dependency_failures_total", *labels, kind, by=missing)

    # -- services ------------------------------------------------------------------------------

    def _ticked(self, event: Ticked) -> None:
        self.inc("penstock_scheduler_due_total", by=event.due)
        self.inc("penstock_scheduler_starts_total", by=event.runs)
        for reason in ("overlapped", "paused", "missed"):
            if n := getattr(event, reason):
                self.inc("penstock_scheduler_skips_total", reason, by=n)

    def _swept(self, event: Swept) -> None:
        for kind, n in event.as_dict().items():
            if n:
                self.inc("penstock_sweeper_repairs_total", kind, by=n)

    def _replica_read(self, event: ReplicaRead) -> None:
        self.inc("penstock_replica_reads_total", event.server)
        if event.lag_seconds is not None:
            self.set("penstock_replica_lag_seconds", value=event.lag_seconds)

    def _service_error(self, event: ServiceError) -> None:
        self.inc("penstock_service_errors_total", event.service)

    # -- limits --------------------------------------------------------------------------------

    def _slot_taken(self, event: SlotTaken) -> None:
        self.inc("penstock_slots_taken_total", event.limit)
        waited = event.waited_us / SECOND
        self.observe("penstock_slot_wait_seconds", event.limit, value=waited)

    def _slot_lost(self, event: SlotLeaseLost) -> None:
        self.inc("penstock_slots_lost_total", event.limit)

    def _quota_hit(self, event: QuotaHit) -> None:
        self.inc("penstock_quota_errors_total", event.limit)

    # -- messages and requests -----------------------------------------------------------------

    def _push_posted(self, event: PushPosted) -> None:
        name, customer = event.subscription, event.customer_id
        response = event.failure or str(event.status)
        self.inc("penstock_push_requests_total", name, response, customer=customer)
        seconds = event.seconds
        self.observe("penstock_push_request_seconds", name, value=seconds, customer=customer)
        self.set("penstock_push_window", name, value=event.window)

    def _push_accepted(self, event: PushAccepted) -> None:
        self.inc("penstock_push_received_total", event.subscription, event.outcome)

    def _push_refused(self, event: PushRefused) -> None:
        # A refused request may name any subscription, so the name is not used as a label.
        self.inc("penstock_push_received_total", "", f"refused {event.status}")

    def _request_sent(self, event: RequestSent) -> None:
        name, customer = event.processor, event.customer_id
        response = event.failure or str(event.status)
        self.inc("penstock_endpoint_requests_total", name, response, customer=customer)
        seconds = event.seconds
        self.observe("penstock_endpoint_request_seconds", name, value=seconds, customer=customer)

    def _message_handled(self, event: MessageHandled) -> None:
        self.inc("penstock_messages_handled_total", event.subscription, event.outcome)
        self.observe("penstock_message_seconds", event.subscription, value=event.seconds)

    def _push_served(self, event: PushServed) -> None:
        self.inc("penstock_consumer_requests_total", event.subscription, str(event.status))

    def _sink_failed(self, event: SinkFailed) -> None:
        self.inc("penstock_sink_errors_total", event.subscription, event.error_type)


def _outcome(event: RunEnded) -> str:
    if event.final_state == "COMPLETED":
        return "completed"
    if event.retry:
        return "retried"
    if event.dead:
        return "dead"
    return "cancelled" if event.final_state == "CANCELLED" else "failed"
