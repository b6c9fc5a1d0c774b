"""Events for the metrics of a process."""

from penstock.audit.telemetry import CompletedRuns, Event, Events, RunEnded, RunsEnded
from penstock.telemetry.process_metrics import ProcessMetrics


def ended(*runs: RunEnded) -> RunsEnded:
    """Return the event of runs that ended together."""
    done = [run for run in runs if run.final_state == "COMPLETED" and run.error_type is None]
    return RunsEnded(
        CompletedRuns(
            [run.processor_key for run in done],
            [run.customer_id for run in done],
            [run.waited_us for run in done],
            [run.duration_us for run in done],
            [run.records for run in done],
        ),
        [run for run in runs if run not in done],
        lambda n: done[n],
    )


def emitting(process: ProcessMetrics, *events: Event) -> None:
    """Emit events on a stream that the metrics of a process count."""
    stream = Events()
    process.subscribe(stream)
    for event in events:
        stream.emit(ended(event) if isinstance(event, RunEnded) else event)
