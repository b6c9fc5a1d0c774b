"""Assembly of telemetry: metrics, exporters and the listener of one process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.access.secrets import Secrets
from penstock.assembly.alerts import disk_measurements
from penstock.assembly.push import build_egress
from penstock.assembly.settings import Settings, secrets_from_environment
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.db.store import CONFLICTS
from penstock.egress.http_client import Request
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.telemetry.catalog import API
from penstock.telemetry.declared import TelemetrySettings, parse_telemetry
from penstock.telemetry.lineage import JobTables, TablesOf
from penstock.telemetry.listener import serve_metrics
from penstock.telemetry.log_lines import LogSink
from penstock.telemetry.process import Surroundings, open_telemetry
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import ProcessorNames, ProcessorPath

if TYPE_CHECKING:
    from penstock.server.metrics import Metrics

LINEAGE_SECONDS = 10.0


class ProcessTelemetry(NamedTuple):
    """Telemetry of a process, for its other components."""

    log: LogSink | None
    metrics: Metrics | None
    """Metrics that the API serves; None without an API."""
    url: str | None
    """URL at which a process without an API serves its metrics."""


@contextlib.contextmanager
def process_telemetry(
    client: Client,
    settings: Settings,
    events: Events,
    pipelines: Sequence[Pipeline],
    *,
    has_api: bool,
) -> Iterator[ProcessTelemetry]:
    """Count and export the events of a process while the block runs, according to the settings."""
    declared = parse_telemetry(settings.telemetry)
    name_of, clock = ProcessorNames(client.views.processor_paths), SystemClock()
    more = API if has_api else ()
    process = ProcessMetrics(name_of, more=more, by_customer=declared.customer_label)
    process.follow("penstock_store_conflicts_total", CONFLICTS.count)
    served = None
    if has_api:
        # The web stack: only processes with an API load it.
        from penstock.server.fleet_metrics import FleetCollector
        from penstock.server.metrics import Metrics  # as above

        local, split = disk_measurements(settings), declared.customer_label
        served = Metrics(process, FleetCollector(client, clock, by_customer=split, local=local))
    registry = process.registry() if served is None else served.registry
    has_port = bool(settings.metrics_port) and not has_api
    is_exported = declared.otlp_endpoint is not None and declared.metrics
    around = Surroundings(
        name_of=name_of,
        tables_of=_tables(pipelines),
        send_lineage=_lineage(declared, settings),
        sentry_dsn=_secret(settings, declared.sentry_dsn_secret),
        clock=clock,
    )
    with contextlib.ExitStack() as stack:
        url = None
        if has_port:
            url = stack.enter_context(
                serve_metrics(registry, settings.metrics_host, settings.metrics_port)
            )
        if has_api or has_port or is_exported:
            stack.callback(process.subscribe(events))
        made = stack.enter_context(open_telemetry(declared, events, process, around, registry))
        yield ProcessTelemetry(made.log, served, url)


def _secret(settings: Settings, name: str | None) -> str | None:
    if name is None:
        return None
    secrets = Secrets(secrets_from_environment(os.environ), settings.secrets_dir or None)
    return secrets.get(name, "")


def _lineage(declared: TelemetrySettings, settings: Settings) -> Callable[[bytes], None] | None:
    url = declared.lineage_url
    if url is None:
        return None
    egress, token = build_egress(settings), _secret(settings, declared.lineage_token_secret)
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"

    def post(body: bytes) -> None:
        response = egress.send(
            Request(url=url, headers=headers, body=body, timeout_s=LINEAGE_SECONDS, keep_alive=True)
        )
        if response.status >= 300:
            raise ConnectionError(f"the receiver of lineage responded {response.status}")

    return post


def _tables(pipelines: Sequence[Pipeline]) -> TablesOf:
    """Return the tables that processors of these pipelines declare as read or written."""
    known = {
        ProcessorPath(pipeline.name, one.phase, one.name): JobTables(
            tuple(sorted({need.table for need in one.terms.needs})), tuple(one.terms.produces)
        )
        for pipeline in pipelines
        for one in pipeline.processors
    }
    return lambda name: known.get(name, JobTables())
