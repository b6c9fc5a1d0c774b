"""Exporters: lineage, errors, failing receivers, missing extras, contexts of requests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.audit.telemetry import Event, Events, FlowEnded, RunEnded, RunStarted, ServiceError
from penstock.cli.logging import EventLog
from penstock.core.clock import SystemClock
from penstock.core.errors import SettingsError
from penstock.core.ids import encode
from penstock.core.naming import ProcessorKey
from penstock.core.tracing.trace_context import (
    TraceContext,
    cause_of,
    correlation_of,
    is_sampled,
    message_correlation,
    parse_traceparent,
    span_of,
    trace_of,
)
from penstock.telemetry.declared import TelemetrySettings, parse_telemetry
from penstock.telemetry.export_queue import ExportQueue
from penstock.telemetry.lineage import JobTables, Lineage
from penstock.telemetry.lineage_sender import LineageSender
from penstock.telemetry.process import Surroundings, Telemetry, open_telemetry
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import ProcessorPath, unknown_name
from penstock.telemetry.spans import Spans
from tests.telemetry.kit import collecting
from tests.telemetry.stream import ended

AT = 1_700_000_000_000_000
PATH = ProcessorPath("nba", "raw", "box")
STARTED = RunStarted(7, "acme", ProcessorKey(1), 1, 3, "c1", 7)
DEAD = RunEnded(
    7, "acme", ProcessorKey(1), "FAILED", "VALIDATION_ERROR", False, True, "ValueError",
    "bad row", "Traceback: bad row", flow_id=3, correlation_id="c1", root_run_id=7, duration_us=5,
)  # fmt: skip
FLOW = FlowEnded(
    flow_id=3, customer_id="acme", pipeline="nba", partition="2026-01-01", mode="daily",
    generation=1, state="COMPLETE", correlation_id="c1", trigger_source="manual",
    started_at=AT - 10_000_000, ended_at=AT,
)  # fmt: skip


def named(_: int) -> ProcessorPath:
    return PATH


class TestTraceContext:
    """Trace context in headers, correlation ids and messages."""

    @pytest.mark.parametrize(
        ("text", "is_valid"),
        [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", True),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", False),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", False),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", False),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", False),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", False),
            ("", False),
            ("x" * 1_000, False),
        ],
    )
    def test_headers_are_parsed_strictly(self, text: str, is_valid: bool) -> None:
        assert (parse_traceparent(text) is not None) == is_valid

    def test_a_context_survives_as_a_correlation_id(self) -> None:
        context = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
        correlation = correlation_of(context)
        assert trace_of(correlation) == context.trace_id
        assert cause_of(correlation) == context.span_id
        assert cause_of("order 7") is None
        assert message_correlation(None, context.header) == correlation
        assert message_correlation("order 7", context.header) == "order 7"

    def test_sampling_is_by_trace(self) -> None:
        traces = [trace_of(f"c{n}") for n in range(2_000)]
        share = sum(is_sampled(trace, 0.25) for trace in traces) / len(traces)
        assert 0.2 < share < 0.3
        spans = Spans(named, 0.25)
        kept = [
            spans.of(RunEnded(n, "a", ProcessorKey(1), "COMPLETED", None, False, False,
                              correlation_id=f"c{n}", duration_us=1), AT)
            for n in range(2_000)
        ]  # fmt: skip
        assert [one is not None for one in kept] == [is_sampled(t, 0.25) for t in traces]


class TestLineage:
    """OpenLineage events."""

    def test_a_run_has_its_tables_and_its_flow(self) -> None:
        tables = JobTables(("raw.schedule",), ("raw.box",))
        lineage = Lineage("shop", named, lambda _: tables)
        (start,) = lineage.of(STARTED, AT)
        (end,) = lineage.of(DEAD, AT + 1)
        begun, done = lineage.of(FLOW, AT)
        assert [one["eventType"] for one in (start, end, begun, done)] == [
            "START", "FAIL", "START", "COMPLETE",
        ]  # fmt: skip
        assert start["run"]["runId"] == end["run"]["runId"] != done["run"]["runId"]
        assert start["job"] == {"namespace": "shop", "name": "nba.raw.box", "facets": {}}
        assert [one["name"] for one in start["inputs"]] == ["raw.schedule"]
        assert [one["name"] for one in end["outputs"]] == ["raw.box"]
        assert end["run"]["facets"]["parent"]["run"]["runId"] == done["run"]["runId"]
        assert end["run"]["facets"]["errorMessage"]["message"] == "bad row"
        assert end["run"]["facets"]["penstock"]["id"] == encode("run", 7)

    def test_events_reach_a_file_and_a_receiver(self, tmp_path: Path) -> None:
        file = tmp_path / "lineage.ndjson"
        posted: list[bytes] = []
        lineage = Lineage("shop", named, lambda _: JobTables())
        sender = LineageSender(lineage, posted.append, str(file))
        assert sender.send([(STARTED, AT), (FLOW, AT)]) == 2
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert lines == [json.loads(body) for body in posted]
        assert len(lines) == 3


def test_sentry_gets_dead_runs_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead run and a service's error are sent; a run that will be retried is not."""
    sentry_sdk = pytest.importorskip("sentry_sdk")
    sent: list[Any] = []

    class Fake(sentry_sdk.transport.Transport):  # type: ignore[misc, name-defined]
        def capture_envelope(self, envelope: Any) -> None:
            sent.append(envelope.get_event())

    real = sentry_sdk.Client
    monkeypatch.setattr(sentry_sdk, "Client", lambda **given: real(transport=Fake, **given))
    events = Events()
    around = Surroundings(name_of=named, sentry_dsn="http://key@127.0.0.1:9/1")
    metrics = ProcessMetrics(named)
    with open_telemetry(TelemetrySettings(), events, metrics, around):
        retried = RunEnded(8, "acme", ProcessorKey(1), "FAILED", "TIMEOUT", True, False)
        events.emit(ended(DEAD, retried))
        events.emit(ServiceError("sweeper", "KeyError: x", 0.1, KeyError("x")))
    assert [one["logger"] for one in sent] == ["penstock.runs", "penstock.sweeper"]
    assert sent[0]["tags"]["processor"] == "box"
    assert sent[0]["exception"]["values"][0]["type"] == "ValueError"


class TestQueue:
    """What happens if there is too much, or the receiver fails."""

    def test_a_full_queue_drops_and_counts(self) -> None:
        counts: dict[str, int] = {}
        arrived: list[int] = []

        def export(batch: list[int]) -> int:
            arrived.extend(batch)
            return len(batch)

        def count(what: str, _: str, n: int) -> None:
            counts[what] = counts.get(what, 0) + n

        queue = ExportQueue("spans", export, count, clock=SystemClock(), batch=10)
        for n in range(3_000):
            queue.put(n)
        assert queue.admit_ordinary(1) == 0
        while queue.step():
            pass
        assert len(arrived) == counts["exported"] == 2_048
        assert counts["dropped"] == 3_000 - 2_048 + 1

    def test_a_failing_receiver_loses_only_its_batch(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        counts: dict[str, int] = {}

        def fail(_: list[int]) -> int:
            raise ConnectionError("down")

        queue = ExportQueue(
            "lineage", fail, lambda what, _, n: counts.update({what: n}), clock=SystemClock()
        )
        for n in range(2):
            queue.put(n)
            queue.step()
        assert counts == {"dropped": 1}
        assert len([one for one in caplog.records if "lineage" in one.getMessage()]) == 1

    def test_a_collector_that_refuses_is_counted(self) -> None:
        with collecting() as collector:
            collector.status = 400
            events, metrics = Events(), ProcessMetrics(named)
            declared = TelemetrySettings(otlp_endpoint=collector.url, metrics=False)
            with open_telemetry(declared, events, metrics, Surroundings(name_of=named)):
                events.emit(FLOW)
        assert b'penstock_telemetry_dropped_total{signal="spans"} 1.0' in metrics.text()


def test_log_records_reach_a_collector() -> None:
    """Lines of the event log arrive over OTLP with severity, fields and the span of their run."""
    lines: list[str] = []
    with collecting() as collector:
        events = Events()
        declared = TelemetrySettings(
            otlp_endpoint=collector.url, logs=True, traces=False, metrics=False
        )
        around = Surroundings(name_of=named)
        with open_telemetry(declared, events, ProcessMetrics(named), around) as telemetry:
            log = EventLog(lines.append, as_json=False, export=telemetry.log)
            log(DEAD)
            log(ServiceError("sweeper", "KeyError: x", 0.1))
    dead, error = collector.logs
    assert (dead.trace_id.hex(), dead.span_id.hex()) == (trace_of("c1"), span_of("run", 7))
    assert (dead.severity_number, error.severity_number) == (17, 17)
    assert dead.body.string_value in lines[0]
    fields = {one.key: one.value.string_value for one in dead.attributes}
    assert (fields["action"], fields["run_id"]) == ("run_ended", encode("run", 7))
    assert error.trace_id == b""


class TestSettings:
    """The table of settings, and extras that are missing."""

    @pytest.mark.parametrize(
        ("table", "field"),
        [
            ({"otlp_endpoint": "collector:4318"}, "otlp_endpoint"),
            ({"sample": 2}, "sample"),
            ({"otlp": "x"}, "otlp"),
            ({"lineage_url": "ftp://h/x"}, "lineage_url"),
        ],
    )
    def test_errors_name_the_field(self, table: dict[str, Any], field: str) -> None:
        with pytest.raises(SettingsError) as caught:
            parse_telemetry(table)
        assert caught.value.field == f"telemetry.{field}"

    @pytest.mark.parametrize(
        ("declared", "around", "module", "extra"),
        [
            (TelemetrySettings(otlp_endpoint="http://127.0.0.1:9"), Surroundings(), "otlp", "otel"),
            (TelemetrySettings(), Surroundings(sentry_dsn="http://k@h/1"), "sentry", "sentry"),
        ],
    )
    def test_a_missing_extra_is_named(
        self,
        monkeypatch: pytest.MonkeyPatch,
        declared: TelemetrySettings,
        around: Surroundings,
        module: str,
        extra: str,
    ) -> None:
        monkeypatch.setitem(sys.modules, f"penstock.telemetry.{module}", None)
        made = Telemetry(declared, Events(), ProcessMetrics(unknown_name), around)
        with pytest.raises(SettingsError, match=rf"penstock-engine\[{extra}\]"):
            made.start()

    def test_nothing_is_subscribed_without_settings(self) -> None:
        events = Events()
        made = ProcessMetrics(unknown_name)
        with open_telemetry(TelemetrySettings(), events, made, Surroundings()):
            kinds = [kind for kind in Event.__subclasses__() if events.wants(kind)]
        assert kinds == []
