"""The reference page of events: those of processes, and the topics that always exist. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

from penstock.audit import telemetry
from penstock.audit.telemetry import Event, RunsEnded, event_name

TOPICS: Final = {
    "penstock.alerts": "An alert was opened, changed or resolved.",
    "penstock.dependency-check-failed": "A gate did not let a phase start; lists the missing data.",
    "penstock.orchestration-status": "The state of a flow or of one of its phases has changed.",
    "penstock.runs": "A run of an external processor can be claimed: its id, config and customer.",
    "penstock.seal-heads": "A block of the journal was sealed: its number, count and hash.",
    "penstock.slo-violation": "A flow or phase took longer than its service level.",
    "<pipeline>.<phase>.complete": "A processor has completed or failed: its status and results.",
    "<pipeline>.<phase>.trigger": "A phase starts; not in a pipeline "
    "of one processor without needs and items, which has no flow.",
}
"""Built-in topics with the meaning of a message."""


def events_page(note: str) -> str:
    """Return the page; `note` says how it was generated."""
    lines = [
        "# Events",
        "",
        note,
        "",
        "## Events of processes",
        "",
        "What processes emit as they work. Logs, metrics, OpenTelemetry, OpenLineage and Sentry "
        "read this one stream; see [telemetry](../how-to/telemetry.md). A log line in JSON "
        "(`PENSTOCK_LOG_FORMAT=json`) has the name as `action` and these fields, with a "
        "`processor_key` as names. Times (`_at`) and durations (`_us`) are in microseconds.",
        "",
        "| event | meaning | fields |",
        "| --- | --- | --- |",
        *(_row(kind) for kind in process_events()),
        "",
        "## Topics",
        "",
        "These topics always exist. Subscribe to them as to your own topics: `penstock "
        "subscriptions create NAME --topic penstock.alerts`.",
        "",
        "| topic | a message |",
        "| --- | --- |",
        *(f"| `{name}` | {meaning} |" for name, meaning in sorted(TOPICS.items())),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def process_events() -> Iterator[type[Event]]:
    """Return every kind of event that all subscribers receive, in the order of declaration."""
    for kind in vars(telemetry).values():
        if inspect.isclass(kind) and issubclass(kind, Event) and kind not in (Event, RunsEnded):
            yield kind


def _row(kind: type[Event]) -> str:
    meaning = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
    return f"| `{event_name(kind)}` | {meaning} | {fields} |"
