"""Text about the state of a processor, a run or a dependency, as a clause: "failed twice, next try
11:12".

`flows.explain.explain`, `flows.explain.why` and `flows.explain.trace` share it, so that they use
the same wording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.flows.explain.facts import (
    RUNS_AHEAD_MAX,
    DecisionFact,
    EvidenceFact,
    ItemsFact,
    LimitFact,
    PauseFact,
    ProcessorFact,
    RunFact,
)
from penstock.flows.explain.times import LocalClock, format_times
from penstock.schedules.liveness import NO_SCHEDULER

PAUSE_SCOPES = {
    "all": "everything is paused",
    "customer": "the customer is paused",
    "pipeline": "the pipeline is paused",
    "config": "the config is paused",
}
ERROR_CHARS = 160


def describe_processor(processor: ProcessorFact, wall: LocalClock) -> str:
    """Describe a processor of a started phase; the text starts with its name."""
    name = processor.name
    if processor.items is not None:
        return f"{name} {describe_items(processor.items)}"
    if processor.status == "success" and processor.at is not None:
        return f"{name} completed at {wall.at(processor.at)}"
    if processor.status == "partial" and processor.at is not None:
        return f"{name} completed in part at {wall.at(processor.at)}"
    live, failed = processor.live, describe_failures(processor.failures)
    if live is not None:
        before = f"{failed}, " if failed else ""
        return f"{name} {before}{describe_run(live, wall)}"
    if processor.status == "failed" and processor.at is not None:
        how = f" ({describe_error(processor.failures[-1])})" if processor.failures else ""
        tries = f" after {len(processor.failures)} attempts" if len(processor.failures) > 1 else ""
        return f"{name} failed permanently at {wall.at(processor.at)}{tries}{how}"
    if processor.is_external:
        return f"{name} has not reported; it runs outside Penstock"
    if failed:
        return f"{name} {failed}"
    return f"{name} has not reported"


def describe_items(items: ItemsFact) -> str:
    """Describe the items of a processor: "9,850 of 10,000 items done, 100 failed (TIMEOUT 100)"."""
    if items.error is not None and not items.is_known:
        waits = "could not list its items" if items.state == "FAILED" else "waits for its items"
        return f"{waits}: {items.error}"
    if not items.is_known and not items.total:
        return "is listing its items"
    if not items.total:
        return "has no items"
    parts = [f"{items.done:,} of {items.total:,} items done"]
    if items.failed:
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in items.errors)
        first = ", ".join(items.first_failed)
        parts.append(f"{items.failed:,} failed ({kinds}; first: {first})")
    left = items.total - items.done - items.failed
    if left and items.state == "CANCELLED":
        parts.append(f"{left:,} cancelled")
    elif left:
        parts.append(f"{left:,} running or waiting")
    if items.required < items.total:
        parts.append(f"{items.required:,} must succeed")
    return ", ".join(parts)


def describe_failures(failures: tuple[RunFact, ...]) -> str:
    """Describe the failures and their error types: "failed twice (TRANSIENT_NETWORK)"."""
    if not failures:
        return ""
    kinds = list(dict.fromkeys(run.error_type or run.state for run in failures))
    return f"failed {format_times(len(failures))} ({', '.join(kinds)})"


def describe_last_failure(processor: ProcessorFact) -> str:
    """Describe the last error of a processor that will be retried: "; the last error was …"."""
    last = processor.failures[-1] if processor.live is not None and processor.failures else None
    return "" if last is None or not last.error else f"; the last error was {describe_error(last)}"


def describe_error(run: RunFact) -> str:
    """Describe the error of a run: "VALIDATION_ERROR: no such column"."""
    kind = run.error_type or run.state
    if not run.error:
        return kind
    text = " ".join(run.error.split())
    return f"{kind}: {text if len(text) <= ERROR_CHARS else text[: ERROR_CHARS - 1] + '…'}"


def describe_run(run: RunFact, wall: LocalClock) -> str:
    """Describe what a live run does or waits for."""
    attempt = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    if run.state in ("RUNNING", "CLAIMED"):
        since = run.started_at if run.started_at is not None else run.since
        verb, by = ("running", "on") if run.state == "RUNNING" else ("claimed", "by")
        worker = f" {by} {run.claimed_by}" if run.claimed_by else ""
        missed = _missed_heartbeats(run, wall)
        return f"has been {verb} since {wall.at(since)}{worker}{attempt}{missed}"
    if run.pending_reason == "later":
        if run.lacks_scheduler:
            what = f"attempt {run.attempt} has" if run.attempt > 1 else "has"
            return f"{what} been due since {wall.at(run.due_at)}"
        word = "next try" if run.attempt > 1 else "due"
        return f"{word} {wall.upcoming(run.due_at)}"
    if run.pending_reason == "paused":
        return f"cannot start: {'; '.join(map(describe_pause, run.pauses)) or 'it is paused'}"
    if run.pending_reason == "blocked":
        key = f" (ordering key {run.ordering_key})" if run.ordering_key else ""
        return f"waits for {run.preceding_run_id or 'the run ahead of it'}{key}"
    if run.pending_reason == "suspended":
        what = run.sub_flow_id or "its sub-flow"
        return f"has been waiting for {what} to end since {wall.at(run.since)}{attempt}"
    if run.pending_reason == "gated":
        return f"has been waiting for its gate since {wall.at(run.since)}"
    if run.pending_reason == "limited":
        lacking = [limit.name for limit in run.limits if limit.is_exhausted]
        names = lacking or [limit.name for limit in run.limits]
        return f"has been waiting for {list_limit_names(names)} since {wall.at(run.since)}{attempt}"
    where = "an external worker" if run.is_external else "a worker"
    where = where if run.endpoint is None else f"a request to {run.endpoint}"
    return f"has been waiting for {where} since {wall.at(run.since)}{attempt}"


def _missed_heartbeats(run: RunFact, wall: LocalClock) -> str:
    """Describe a worker that misses heartbeats; empty while it sends them."""
    seen = run.heartbeat
    if seen is None or not seen.is_overdue(wall.now):
        return ""
    if seen.at is None or seen.until_at is None:
        return (
            "; its worker has ended without completing it, and the run will be taken over any "
            "moment"
        )
    until = seen.until_at
    when = f"after {wall.exact(until)}" if until > wall.now else "any moment"
    return (
        f"; its worker has sent no heartbeat since {wall.exact(seen.at)}, and the run will be "
        f"taken over {when} unless the worker reports"
    )


def describe_incapable_workers(run: RunFact) -> str:
    """Say that the live workers of a pool do not seem to execute a pipeline."""
    count = run.workers or 0
    who = "the live worker" if count == 1 else f"none of the {count:,} live workers"
    verb = "does not seem" if count == 1 else "seems"
    return f"{who} in pool {run.pool} {verb} to execute pipeline {run.pipeline}"


def describe_missing_scheduler() -> str:
    """Say why a run that is past its time is not made ready."""
    return f"{NO_SCHEDULER} to make it ready"


def describe_missing_process(processor: ProcessorFact) -> str:
    """Say that no scheduler makes a due run ready, or that no live worker seems to execute it."""
    live = processor.live
    if live is not None and live.lacks_scheduler:
        return f"; {describe_missing_scheduler()}"
    if live is None or not live.is_unclaimed:
        return ""
    return f"; {describe_incapable_workers(live)}"


def describe_pause(pause: PauseFact) -> str:
    """Describe a pause: what is paused, by whom and why."""
    what = PAUSE_SCOPES.get(pause.scope, "it is paused")
    why = f" ({pause.reason})" if pause.reason else ""
    return f"{what} by {pause.by}{why}"


def describe_queue_position(run: RunFact) -> str:
    """Describe how many runs are claimed before this one; empty if unknown."""
    if run.runs_ahead is None:
        return ""
    if run.runs_ahead == 0:
        return "it is next in the queue"
    if run.runs_ahead >= RUNS_AHEAD_MAX:
        return f"{RUNS_AHEAD_MAX:,} or more runs are ahead of it"
    return f"{run.runs_ahead:,} {'run is' if run.runs_ahead == 1 else 'runs are'} ahead of it"


def list_limit_names(names: Sequence[str]) -> str:
    """List limits by name: "limit a", "limits a and b"."""
    if not names:
        return "its limits"
    return f"limit{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def describe_maximum(limit: LimitFact) -> str:
    """Describe a customer's maximum number of runs, which it has reached."""
    return (
        f"customer {limit.customer} may have {limit.capacity} runs at a time and has that many"
        f"{describe_limit_usage(replace(limit, held=None))}"
    )


def describe_limit_usage(limit: LimitFact) -> str:
    """Describe how much of a limit is held, and a run's position in its queue."""
    parts = []
    if limit.held is not None and limit.capacity is not None:
        parts.append(f"{limit.held} of {limit.capacity} held")
    if limit.weight > 1:
        parts.append(f"{limit.weight} needed")
    if limit.waiters_ahead is not None and limit.is_waiting:
        count = (
            f"{RUNS_AHEAD_MAX:,} or more"
            if limit.waiters_ahead >= RUNS_AHEAD_MAX
            else f"{limit.waiters_ahead:,}"
        )
        ahead = (
            "first in the queue"
            if limit.waiters_ahead == 0
            else f"{count} ahead of it in the queue"
        )
        parts.append(ahead)
    return f" ({', '.join(parts)})" if parts else ""


def describe_evidence(item: EvidenceFact, reason: str = "") -> str:
    """Return the evidence of one dependency as text.

    reason: a text beside it, whose message of a failed probe is not repeated.
    """
    kind = "" if item.kind == "same_day" else f" ({item.kind})"
    if item.error is not None:
        text = f"{item.table}{kind} could not be probed"
        return text if item.error in reason else f"{text} ({item.error})"
    if item.kind == "historical":
        days = f"{item.days_present or 0} of {item.days_needed or 0} days"
        return f"{item.table}{kind} {'; '.join(item.issues) or days}"
    counted = f"{item.rows or 0}/{item.expected or 0} rows"
    return f"{item.table}{kind} {'; '.join(item.issues) or counted}"


def warnings_without_errors(decision: DecisionFact) -> list[str]:
    """Return the warnings of a decision; its sentence has the messages of failed probes."""
    lines = list(decision.warnings)
    for item in decision.evidence:
        for issue in item.issues if item.error is not None else ():
            lines = [
                f"{item.table} could not be probed"
                if line == f"{item.table}: {issue}"
                else line.removesuffix(f": {issue}")
                for line in lines
            ]
    return lines
