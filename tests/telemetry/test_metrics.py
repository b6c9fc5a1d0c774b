"""Metrics: exactly the declared ones are exposed, with bounded labels, counted from events."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.alerts.measures import METRICS, Measurement
from penstock.assets.alert_metrics import NOT_EXPORTED, all_metrics
from penstock.audit import telemetry
from penstock.audit.telemetry import Event, Events, GateDecided, PushPosted, RunEnded, RunsEnded
from penstock.core.clock import MINUTE
from penstock.core.naming import ProcessorKey
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import CONFLICTS, Tx
from penstock.server.fleet_metrics import FleetCollector
from penstock.server.metrics import Metrics
from penstock.telemetry.catalog import API, LABEL_VALUES_MAX, PROCESS
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import ProcessorPath, unknown_name
from tests.alerts.drills import sink_behind
from tests.kits.client_harness import Harness
from tests.telemetry.stream import emitting, ended

DONE = RunEnded(7, "acme", ProcessorKey(1), "COMPLETED", None, False, False, duration_us=2_000_000)
GATE = GateDecided(
    customer_id="acme", pipeline="nba", phase="raw", processor="", mode="daily",
    verdict="PROCEED", status="ready", completeness=95.0, quality=0.9, reason="", source="manual",
    at=1, flow_id=1, correlation_id="c", probed_us=10, scanned_bytes=5,
    checks={"same_day": (3, 1)},
)  # fmt: skip


def names(_: int) -> ProcessorPath:
    return ProcessorPath("nba", "raw", "box")


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples of an exposition by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def families(text: bytes) -> dict[str, str]:
    """Return the declared type of every family of an exposition, by its name with suffix."""
    lines = [line.split() for line in text.decode().splitlines() if line.startswith("# TYPE")]
    return {line[2]: line[3] for line in lines}


def every_event() -> Iterator[Event]:
    """Yield an event of every kind, with values of the right types."""
    values: dict[Any, Any] = {int: 1, str: "x", float: 1.0, bool: True}
    for kind in Event.__subclasses__():
        if kind.__module__ != telemetry.__name__ or kind is RunsEnded:
            continue
        given = {}
        for field in msgspec.structs.fields(kind):
            if field.required:
                types = getattr(field.type, "__args__", (field.type,))
                first = getattr(types[0], "__supertype__", types[0])
                given[field.name] = values[first]
        yield kind(**given)
    yield ended(DONE)


def local() -> Sequence[Measurement]:
    """Measure everything that rules compare, once."""
    return [Measurement(metric=name, value=1.0) for name in METRICS if name not in NOT_EXPORTED]


def test_the_api_exposes_exactly_what_is_declared(harness: Harness) -> None:
    """Every declared metric is exposed with its type, and no other."""
    process = ProcessMetrics(names, more=API)
    events = Events()
    process.subscribe(events)
    for event in every_event():
        events.emit(event)
    fleet = FleetCollector(harness.client, harness.clock, local=local)
    served = Metrics(process, fleet)
    found = families(bytes(served.response().body))
    assert found == {metric.name: metric.kind for metric in all_metrics()}


def test_a_worker_exposes_what_a_process_does() -> None:
    """A process without an API exposes the metrics of processes, and no other."""
    found = families(ProcessMetrics(unknown_name).text())
    assert found == {metric.name: metric.kind for metric in PROCESS}


def test_every_event_is_accepted() -> None:
    """Every kind that the metrics subscribe to is counted without an error."""
    process = ProcessMetrics(names)
    emitting(process, *every_event())
    assert samples(process.text())


def test_runs_are_counted_by_processor() -> None:
    """Ends are counted by outcome, errors by type, and durations are in seconds."""
    process = ProcessMetrics(names)
    failed = msgspec.structs.replace(
        DONE, final_state="FAILED", error_type="TIMEOUT", retry=True, records=3
    )
    emitting(process, DONE, DONE, failed)
    found = samples(process.text())
    labels = (("pipeline", "nba"), ("processor", "box"))
    outcome = tuple(sorted((*labels, ("outcome", "completed"))))
    assert found["penstock_run_ends_total", outcome] == 2
    retried = tuple(sorted((*labels, ("outcome", "retried"))))
    assert found["penstock_run_ends_total", retried] == 1
    assert found["penstock_run_seconds_sum", labels] == 6
    assert found["penstock_run_seconds_count", labels] == 3
    assert found["penstock_run_seconds_bucket", (("le", "1"), *labels)] == 0
    assert found["penstock_run_seconds_bucket", (("le", "10"), *labels)] == 3
    assert found["penstock_run_records_total", labels] == 3
    emitting(process, DONE)
    assert samples(process.text())["penstock_run_ends_total", outcome] == 3


@pytest.mark.parametrize("is_split", [False, True])
def test_a_batch_is_counted_as_its_runs(is_split: bool) -> None:
    """Runs that one transaction ended count as if each had been alone, at the bounds as well."""
    us = [0, 1, 9_999, 10_000, 10_001, 100_000, 2_000_000, 50_000_000_000, None]
    runs = [
        msgspec.structs.replace(
            DONE, customer_id=f"c{n % 2}", duration_us=one, waited_us=(one or 0) // 2, records=n
        )
        for n, one in enumerate(us)
    ]
    runs += [msgspec.structs.replace(run, processor_key=ProcessorKey(2)) for run in runs[:3]]
    one_by_one, together = (ProcessMetrics(unknown_name, by_customer=is_split) for _ in range(2))
    emitting(one_by_one, *runs)
    emitting(together, ended(*runs))
    assert samples(together.text()) == pytest.approx(samples(one_by_one.text()))
    labels = {"pipeline": "unknown", "processor": "processor 1"} | (
        {"customer": "c1"} if is_split else {}
    )
    at_bound = tuple(sorted({**labels, "le": "0.01"}.items()))
    within = [n for n in range(len(us)) if (us[n] or 0) <= 10_000 and us[n] is not None]
    expected = len([n for n in within if n % 2 or not is_split])
    assert samples(together.text())["penstock_run_seconds_bucket", at_bound] == expected


def test_gates_count_dependencies_by_kind() -> None:
    """A decision counts its checks, its trigger, and sets the last completeness."""
    process = ProcessMetrics(names)
    emitting(process, GATE)
    found = samples(process.text())
    where = (("phase", "raw"), ("pipeline", "nba"))
    kind = (("kind", "same_day"), *where)
    assert found["penstock_dependency_checks_total", kind] == 3
    assert found["penstock_dependency_failures_total", kind] == 1
    assert found["penstock_gate_completeness_ratio", where] == 0.95
    source = (("pipeline", "nba"), ("source", "manual"))
    assert found["penstock_gate_triggers_total", source] == 1


@pytest.mark.parametrize("is_split", [False, True])
def test_customers_are_a_label_only_on_request(is_split: bool) -> None:
    """Without the setting no series names a customer; with it, those that allow it do."""
    process = ProcessMetrics(names, by_customer=is_split)
    for customer in ("acme", "bolt"):
        emitting(process, msgspec.structs.replace(DONE, customer_id=customer))
    ends = [key for key in samples(process.text()) if key[0] == "penstock_run_ends_total"]
    assert len(ends) == (2 if is_split else 1)
    assert ("acme" in str(ends)) == is_split


def test_labels_are_bounded() -> None:
    """However many names there are, a metric has a bounded number of series."""
    process = ProcessMetrics(names)
    push = PushPosted(
        subscription="", customer_id="acme", message_id=1, attempt=1, outcome="ack", status=200,
        failure="", seconds=0.1, window=1,
    )  # fmt: skip
    for n in range(LABEL_VALUES_MAX + 50):
        emitting(process, msgspec.structs.replace(push, subscription=f"s{n}"))
    found = samples(process.text())
    counted = [key for key in found if key[0] == "penstock_push_requests_total"]
    assert len(counted) == LABEL_VALUES_MAX + 1
    other = (("response", "200"), ("subscription", "other"))
    assert found["penstock_push_requests_total", other] == 50


def test_a_scrape_without_a_database(harness: Harness) -> None:
    """While the database is down only `penstock_up` is exposed, and scrapes share one reading."""
    fleet = FleetCollector(harness.client, harness.clock)
    assert len(list(fleet.collect())) > 10
    harness.store.close()
    (family,) = list(fleet.collect())
    assert (family.name, family.samples[0].value) == ("penstock_up", 0)


def test_the_backlog_of_an_audit_sink(harness: Harness) -> None:
    """A sink that lacks sealed entries shows how many and since when; a served one shows 0."""
    sink_behind(harness)
    harness.clock.advance(MINUTE)
    fleet = FleetCollector(harness.client, harness.clock)
    (entries,) = harness.column("SELECT sum(entries) FROM seals")
    registry = CollectorRegistry()
    registry.register(fleet)
    sink = (("sink", "parquet:x"),)
    found = samples(generate_latest(registry))
    assert found["penstock_audit_backlog_entries", sink] == entries > 0
    assert found["penstock_audit_backlog_seconds", (("subject", "parquet:x"),)] == 60
    harness.sql("UPDATE shipments SET position = 99")
    harness.clock.advance(MINUTE)
    assert samples(generate_latest(registry))["penstock_audit_backlog_entries", sink] == 0


def test_conflicts_of_the_store(tmp_path: Path) -> None:
    """A transaction that waits for another writer is counted."""
    first, second = (SqliteStore(tmp_path / "conflicts.db") for _ in range(2))
    first.migrate()
    process = ProcessMetrics(names)
    process.follow("penstock_store_conflicts_total", CONFLICTS.count)
    before = CONFLICTS.count()
    holds, waits = threading.Event(), threading.Event()

    def hold(_: Tx) -> None:
        holds.set()
        assert waits.wait(60)

    holder = threading.Thread(target=lambda: first.write(hold))
    holder.start()
    assert holds.wait(60)
    writer = threading.Thread(target=lambda: second.write(lambda tx: tx.now()))
    writer.start()
    while CONFLICTS.count() == before:
        writer.join(0.001)
    waits.set()
    holder.join(60)
    writer.join(60)
    assert samples(process.text())["penstock_store_conflicts_total", ()] == before + 1
    for store in (first, second):
        store.close()
