"""The setting `telemetry`: receivers of events in addition to the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from penstock.core.errors import InvalidInput, SettingsError
from penstock.core.records.record import Meta, Record
from penstock.core.records.validation import convert_input

_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2_000)]


class TelemetrySettings(Record):
    """The table `telemetry` of the settings."""

    otlp_endpoint: _Text | None = None
    """URL of an OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318."""
    traces: bool = True
    """Whether spans are sent to the collector."""
    metrics: bool = True
    """Whether the metrics of the process are sent to the collector."""
    logs: bool = False
    """Whether log records are sent to the collector."""
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Fraction of traces that are exported, chosen by trace id, so that all processes agree."""
    spans_per_second: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Maximum number of spans that a process exports per second; further ones of successful runs
    are dropped.
    """
    service_name: _Text = "penstock"
    """Value of the OpenTelemetry attribute `service.name`."""
    customer_label: bool = False
    """Whether metrics of customers' work have the label `customer`."""
    lineage_url: _Text | None = None
    """URL to which OpenLineage events are posted, such as https://marquez.example/api/v1/lineage.
    """
    lineage_token_secret: _Text | None = None
    """Name of the secret that is sent to `lineage_url` as a bearer token."""
    lineage_file: _Text | None = None
    """File to which OpenLineage events are appended, one per line."""
    lineage_namespace: _Text = "penstock"
    """OpenLineage namespace of jobs, and of tables that have none."""
    sentry_dsn_secret: _Text | None = None
    """Name of the secret with the DSN of Sentry, for unexpected errors of services, and dead runs.
    """
    sentry_environment: _Text | None = None


def parse_telemetry(table: Mapping[str, Any]) -> TelemetrySettings:
    """Check the setting `telemetry`; raise SettingsError, naming the field."""
    try:
        made: TelemetrySettings = convert_input(dict(table), TelemetrySettings)
    except InvalidInput as error:
        raise SettingsError(
            f"telemetry.{error.field}", error.expected, error.got, error.fix
        ) from None
    for name in ("otlp_endpoint", "lineage_url"):
        url = getattr(made, name)
        if url is not None and not _is_url(url):
            raise SettingsError(f"telemetry.{name}", "an http or https URL", url)
    return made


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
