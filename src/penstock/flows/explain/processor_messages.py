"""What a processor or a run is doing, in a clause: "failed twice, next try 11:12".

Only words. `core.explain`, `core.why` and `core.tracing` share them, so that the same thing is
called the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.flows.explain.facts import AHEAD_MAX, LimitFact, PauseFact, ProcessorFact, RunFact
from penstock.flows.explain.times import Wall, times

SCOPES = {
    "all": "everything is paused",
    "customer": "the customer is paused",
    "pipeline": "the pipeline is paused",
    "config": "its config is paused",
}
ERROR_CHARS = 160


def processor_words(processor: ProcessorFact, wall: Wall) -> str:
    """Where a processor of a phase stands that was started; starts with its name."""
    name = processor.name
    if processor.status == "success" and processor.at is not None:
        return f"{name} completed at {wall.at(processor.at)}"
    if processor.status == "partial" and processor.at is not None:
        return f"{name} completed in part at {wall.at(processor.at)}"
    live, failed = processor.live, failed_words(processor.failures)
    if live is not None:
        before = f"{failed}, " if failed else ""
        return f"{name} {before}{run_words(live, wall)}"
    if processor.status == "failed" and processor.at is not None:
        how = f" ({error_words(processor.failures[-1])})" if processor.failures else ""
        tries = f" after {len(processor.failures)} attempts" if len(processor.failures) > 1 else ""
        return f"{name} failed for good at {wall.at(processor.at)}{tries}{how}"
    if processor.is_external:
        return f"{name} has not reported; somebody outside runs it"
    if failed:
        return f"{name} {failed}"
    return f"{name} has not reported"


def failed_words(failures: tuple[RunFact, ...]) -> str:
    """How often it failed and with what: "failed twice (TRANSIENT_NETWORK)"."""
    if not failures:
        return ""
    kinds = list(dict.fromkeys(run.error_type or run.state for run in failures))
    return f"failed {times(len(failures))} ({', '.join(kinds)})"


def error_words(run: RunFact) -> str:
    """What went wrong: "VALIDATION_ERROR: no such column"."""
    kind = run.error_type or run.state
    if not run.error:
        return kind
    text = " ".join(run.error.split())
    return f"{kind}: {text if len(text) <= ERROR_CHARS else text[: ERROR_CHARS - 1] + '…'}"


def run_words(run: RunFact, wall: Wall) -> str:
    """What a live run does or waits for."""
    attempt = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    if run.state in ("RUNNING", "CLAIMED"):
        since = run.started_at if run.started_at is not None else run.since
        on = f" on {run.claimed_by}" if run.claimed_by else ""
        verb = "is running" if run.state == "RUNNING" else "is about to run"
        return f"{verb} since {wall.at(since)}{on}{attempt}"
    if run.waits == "later":
        word = "next try" if run.attempt > 1 else "due"
        return f"{word} {wall.coming(run.due_at)}"
    if run.waits == "paused":
        return f"does not start: {'; '.join(map(pause_words, run.pauses)) or 'it is paused'}"
    if run.waits == "blocked":
        key = f" (ordering key {run.ordering_key})" if run.ordering_key else ""
        return f"waits for {run.behind or 'the run in front of it'}{key}"
    if run.waits == "limited":
        lacking = [limit.name for limit in run.limits if limit.lacks]
        names = lacking or [limit.name for limit in run.limits]
        return f"waits for {limit_names(names)} since {wall.at(run.since)}{attempt}"
    where = "an external worker" if run.is_external else "a worker"
    return f"waits for {where} since {wall.at(run.since)}{attempt}"


def pause_words(pause: PauseFact) -> str:
    """What is paused, by whom and why."""
    what = SCOPES.get(pause.scope, "it is paused")
    why = f" ({pause.reason})" if pause.reason else ""
    return f"{what} by {pause.by}{why}"


def ahead_words(run: RunFact) -> str:
    """How many runs are taken before this one."""
    if run.ahead is None:
        return ""
    if run.ahead == 0:
        return "it is next in line"
    if run.ahead >= AHEAD_MAX:
        return f"{AHEAD_MAX:,} runs or more are before it"
    return f"{run.ahead:,} {'run is' if run.ahead == 1 else 'runs are'} before it"


def limit_names(names: Sequence[str]) -> str:
    """Limits by name: "limit a", "limits a and b"."""
    if not names:
        return "its limits"
    return f"limit{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def line_words(limit: LimitFact) -> str:
    """How much of a limit is held, and where a run stands in its line."""
    parts = []
    if limit.held is not None and limit.most is not None:
        parts.append(f"{limit.held} of {limit.most} held")
    if limit.weight > 1:
        parts.append(f"{limit.weight} needed")
    if limit.ahead is not None and limit.is_waiting:
        count = f"{AHEAD_MAX:,} or more" if limit.ahead >= AHEAD_MAX else f"{limit.ahead:,}"
        parts.append("first in line" if limit.ahead == 0 else f"{count} before it in line")
    return f" ({', '.join(parts)})" if parts else ""
