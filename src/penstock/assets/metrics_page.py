"""The reference page of metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.assets.alert_metrics import all_metrics
from penstock.telemetry.catalog import CUSTOMER, LABEL_VALUES_MAX, DeclaredMetric

SCOPES: Final = {
    "process": (
        "What a process did itself",
        "Counted since the process started, and exposed by it: the API at `/metrics`, workers and "
        "schedulers on `--metrics-port`, a consumer at `/metrics` or on its `metrics_port`, and "
        "all of them over OTLP. Sum over instances.",
    ),
    "api": ("The HTTP server", "Exposed by processes with an API."),
    "fleet": (
        "The installation",
        "Read from the database at a scrape of the API's `/metrics`. Every API process exposes the "
        "same figures: take `max`, not `sum`, over instances. At most 200 subscriptions, limits "
        "and subjects are exported.",
    ),
}  # fmt: skip


def metrics_page(note: str) -> str:
    """Return the page; `note` says how it was generated."""
    lines = [
        "# Metrics",
        "",
        note,
        "",
        "Every metric that Penstock exposes, with its labels. A label whose values come from your "
        f"names has at most {LABEL_VALUES_MAX} values in a process; further ones are counted as "
        "`other`. No metric has a label for customers unless `customer_label` of the setting "
        "`telemetry` is on: then those marked † have the label "
        f"`{CUSTOMER}`. [Telemetry](../how-to/telemetry.md) says how to collect them.",
    ]  # fmt: skip
    for scope, (title, text) in SCOPES.items():
        found = [metric for metric in all_metrics() if metric.scope == scope]
        lines += ["", f"## {title}", "", text, "", *_table(found)]
    return "\n".join(lines) + "\n"


def _table(metrics: Sequence[DeclaredMetric]) -> Iterator[str]:
    yield "| metric | type | labels | unit | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        mark = " †" if metric.by_customer else ""
        cells = (f"`{metric.name}`{mark}", metric.kind, labels, metric.unit, metric.help)
        yield f"| {' | '.join(cells)} |"
