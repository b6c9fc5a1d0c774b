"""The audit sink that the settings name: build it, ship to it, query and verify it."""

from __future__ import annotations

from pathlib import Path

from penstock.assembly.settings import Settings
from penstock.core.clock import Clock, Micros
from penstock.core.errors import InvalidInput, SettingsError
from penstock.db.store import StoreView
from penstock.probes.bigquery.address import parse_bigquery, parse_bytes
from penstock.probes.bigquery.connection import require_bigquery
from penstock.services.store import Retention
from penstock.shipping.batches import AuditSink
from penstock.shipping.client import SinkVerifier
from penstock.shipping.records import SinkVerification
from penstock.shipping.shipper import ShipCounts, Shipper
from penstock.sinks.audit_bigquery import BigQuerySink
from penstock.sinks.audit_bigquery_query import query_bigquery
from penstock.sinks.audit_parquet import ParquetSink, load_duckdb
from penstock.sinks.audit_query import QueryResult, SinkQueryBounds, query_parquet

__all__ = [
    "QueryResult", "ShipCounts", "build_audit_sink", "build_query_bounds", "build_retention",
    "build_shipper", "query_sink", "ship_once", "sink_name", "verify_sink",
]  # fmt: skip


def build_audit_sink(settings: Settings, clock: Clock | None = None) -> AuditSink | None:
    """Return the audit sink; None if no sink is set. Nothing is opened yet."""
    kind, _, place = settings.audit_sink.partition(":")
    if not settings.audit_sink:
        return None
    if kind == "bigquery":
        address = parse_bigquery(settings.audit_sink, "audit_sink")
        if address.dataset is not None:
            return BigQuerySink(address)
    elif kind == "parquet" and place:
        return ParquetSink(Path(place).expanduser().absolute(), clock=clock)
    expected = "parquet:DIR or bigquery:PROJECT.DATASET"
    raise SettingsError("audit_sink", expected, settings.audit_sink)


def build_shipper(
    store: StoreView, settings: Settings, clock: Clock | None = None
) -> tuple[Shipper, Micros] | None:
    """Return the service that ships to the audit sink, and its interval; None if no sink is set.

    Raises InvalidInput if the library of the sink is not installed.
    """
    sink = build_audit_sink(settings, clock)
    if sink is None:
        return None
    return _shipper(store, sink), max(settings.audit_sink_interval, sink.interval_us)


def _shipper(store: StoreView, sink: AuditSink) -> Shipper:
    if isinstance(sink, BigQuerySink):
        require_bigquery("audit_sink")
    else:
        load_duckdb()
    return Shipper(store, sink)


def build_retention(settings: Settings) -> Retention:
    """Return how long ended records are kept."""
    sink = build_audit_sink(settings) if settings.prune_behind_sink == "yes" else None
    return Retention(
        behind_sink=None if sink is None else sink.name,
        history_us=settings.history_retention,
        journal_us=settings.journal_retention,
        flows_us=settings.flows_retention,
        logs_us=settings.logs_retention,
        alerts_us=settings.alerts_retention,
        dead_letters_us=settings.dead_letters_retention,
        interventions_us=settings.interventions_retention,
        overrides_us=settings.overrides_retention,
    )


def sink_name(settings: Settings) -> str:
    """Return the name under which the sink's positions are stored."""
    return _set(settings).name


def ship_once(store: StoreView, settings: Settings) -> ShipCounts:
    """Ship everything that can be shipped now."""
    sink = _set(settings)
    try:
        return _shipper(store, sink).run_once()
    finally:
        sink.close()


def verify_sink(store: StoreView, settings: Settings) -> SinkVerification:
    """Compare the sink with its manifest, the journal and the database."""
    sink = _set(settings)
    try:
        return SinkVerifier(store, sink).run(len(sink.unlisted()))
    finally:
        sink.close()


def build_query_bounds(
    rows_max: int, seconds: float, memory_mb: int, max_bytes: str | None
) -> SinkQueryBounds:
    """Return the bounds of a query from command options; `max_bytes` is text such as `500MB`."""
    return SinkQueryBounds(
        rows_max=rows_max,
        seconds=seconds,
        memory_mb=memory_mb,
        bytes_max=None if max_bytes is None else parse_bytes(max_bytes, "--max-bytes"),
    )


def query_sink(settings: Settings, text: str, bounds: SinkQueryBounds) -> QueryResult:
    """Execute one SELECT over the sink."""
    sink = _set(settings)
    try:
        if isinstance(sink, BigQuerySink):
            return query_bigquery(sink, text, bounds)
        assert isinstance(sink, ParquetSink)
        return query_parquet(sink.root, text, bounds)
    finally:
        sink.close()


def _set(settings: Settings) -> AuditSink:
    sink = build_audit_sink(settings)
    if sink is None:
        fix = (
            "Set it: PENSTOCK_AUDIT_SINK=parquet:DIR or bigquery:PROJECT.DATASET, or audit_sink "
            "in penstock.toml."
        )
        raise InvalidInput("audit_sink", "an audit sink", "none", fix)
    return sink
