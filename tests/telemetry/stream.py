"""Events for the metrics of a process."""

from penstock.audit.telemetry import Event, Events
from penstock.telemetry.process_metrics import ProcessMetrics


def emitting(process: ProcessMetrics, *events: Event) -> None:
    """Emit events on a stream that the metrics of a process count."""
    stream = Events()
    process.subscribe(stream)
    for event in events:
        stream.emit(event)
