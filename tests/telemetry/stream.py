"""Events for the metrics of a process."""

from penstock.audit.telemetry import CompletedRun, Event, Events, RunEnded, RunsEnded
from penstock.telemetry.process_metrics import ProcessMetrics


def ended(*runs: RunEnded) -> RunsEnded:
    """Return the event of runs that ended together."""
    done = [run for run in runs if run.final_state == "COMPLETED" and run.error_type is None]
    return RunsEnded(
        [
            CompletedRun(
                run.processor_key, run.customer_id, run.waited_us, run.duration_us, run.records
            )
            for run in done
        ],
        [run for run in runs if run not in done],
        lambda n: done[n],
    )


def emitting(process: ProcessMetrics, *events: Event) -> None:
    """Emit events on a stream that the metrics of a process count."""
    stream = Events()
    process.subscribe(stream)
    for event in events:
        stream.emit(ended(event) if isinstance(event, RunEnded) else event)
