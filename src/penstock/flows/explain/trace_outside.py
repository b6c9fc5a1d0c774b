"""Steps of a trace, and its part outside flows: messages, deliveries, single runs, dead letters.

Pure, over rows of `tracking.rows`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.core.clock import MILLISECOND, SECOND, Micros
from penstock.core.formatting import parsed
from penstock.core.ids import encode
from penstock.flows.explain.facts import RunFact
from penstock.flows.explain.processor_messages import ERROR_CHARS, describe_run
from penstock.flows.explain.times import LocalClock, format_span
from penstock.tracking.rows import ExecutionRow, MessageOfTrace, OpenDelivery, TracedDeadLetter

_STATES = {0: "ready", 1: "leased", 2: "delayed", 3: "behind an earlier message of its key"}
_ENDS = {
    "message_acked": "handled it",
    "message_expired": "dropped it: it was past its retention",
    "message_purged": "dropped it: its backlog was purged",
    "message_nack": "did not handle it",
    "message_lapsed": "did not ack it in time",
    "message_dead_letter": "gave up on it",
}
_HANDLED = {
    "duplicate": "had already applied it",
    "stale_ignored": "ignored it: it has newer data",
    "waiting": "acked it without handling: its gate waits for data",
    "poison": "dropped it as poison",
}
"""Outcomes that consumers report for messages that they acked but did not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event of a trace.

    kind: message, delivery, flow, gate, execution, report, phase, dead_letter or end.
    """

    at: Micros
    kind: str
    flow_id: str
    phase: str | None
    processor: str | None
    text: str
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingStep:
    """A phase, run or delivery that has not started or has not completed, and why."""

    flow_id: str | None
    phase: str | None
    text: str
    since: Micros | None = None
    until: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideFlows:
    """Everything that a cause started outside flows."""

    messages: Sequence[MessageOfTrace] = ()
    executions: Sequence[ExecutionRow] = ()
    """Single runs, deliveries, and executions of flows that are no longer stored."""
    open_deliveries: Sequence[OpenDelivery] = ()
    live_runs: Sequence[RunFact] = ()
    dead_letters: Sequence[TracedDeadLetter] = ()


def outside_steps(facts: OutsideFlows) -> Iterator[Step]:
    """Yield the steps outside flows."""
    for message in facts.messages:
        yield _step(
            message.published_at,
            "message",
            f"message {message.message_id} published on {message.topic}",
        )
    for row in facts.executions:
        yield _delivery(row) if row.kind in ("delivery", "attempt") else _run(row)
    for dead_letter in facts.dead_letters:
        yield from _dead_letter(dead_letter)


def outside_absences(facts: OutsideFlows, now: Micros) -> Iterator[MissingStep]:
    """Yield the missing steps outside flows, with the reasons."""
    wall = LocalClock(now, "UTC")
    for one in facts.open_deliveries:
        yield _pending(one, wall)
    for run in facts.live_runs:
        text = f"{run.run_id} {run.processor}: {describe_run(run, wall)}"
        yield MissingStep(flow_id=None, phase=run.phase, text=text, since=run.since)
    for dead_letter in facts.dead_letters:
        if dead_letter.status == "open":
            dead = encode("dl", dead_letter.dead_letter_id)
            what = _dead_letter_name(dead_letter)
            yield MissingStep(
                flow_id=None,
                phase=dead_letter.phase,
                since=dead_letter.died_at,
                text=f"{what}: not processed, kept as {dead}: penstock dlq replay "
                f"{shlex.quote(dead)}",
            )


def _pending(one: OpenDelivery, wall: LocalClock) -> MissingStep:
    error = f": {_short(one.last_error)}" if one.last_error else ""
    name = f"message {one.message_id} to {one.subscription}"
    text = f"{name}: not handled, {_STATES[one.state]}{error}"
    until = None
    if one.state == 1 and one.until_at is not None:
        until = one.until_at
        text = f"{name}: not handled, a consumer holds it until {wall.at(until)}"
    elif one.state == 2:
        text = f"{name}: attempt {one.attempt + 1} is due {wall.upcoming(one.due_at)}{error}"
        until = one.due_at
    return MissingStep(flow_id=None, phase=None, text=text, since=one.born_at, until=until)


def _delivery(row: ExecutionRow) -> Step:
    error = "" if row.kind == "delivery" else f": {_error(row.error_type, row.error)}"
    tries = f" (attempt {row.retry_count + 1})" if row.retry_count else ""
    is_acked = row.event_type == "message_acked"
    ended = (_HANDLED.get(row.handled_as or "") if is_acked else None) or _ENDS[row.event_type]
    took = "" if row.handled_us is None else f" in {_precise(row.handled_us)}"
    by = "" if row.handled_as is None else f" by {_deployed(row)}"
    text = f"{row.subscription} {ended}{took}{tries}{by}: message {row.message_id}{error}"
    return _step(row.ended_at, "delivery", text, processor=row.subscription)


def _precise(us: Micros) -> str:
    return f"{us // MILLISECOND} ms" if us < SECOND else format_span(us)


def _deployed(row: ExecutionRow) -> str:
    return " ".join(part for part in (row.service, row.revision) if part)


def _run(row: ExecutionRow) -> Step:
    state = row.event_type.rpartition("_")[2].upper().replace("COMPLETE", "COMPLETED")
    took = "" if row.started_at is None else f" in {format_span(row.ended_at - row.started_at)}"
    attempt = f", attempt {row.retry_count + 1}" if row.retry_count else ""
    error = f": {_error(row.error_type, row.error)}" if row.error_type else ""
    if row.kind == "report":
        text = f"{row.processor} reported {row.status} externally"
        return _step(row.ended_at, "report", text, phase=row.phase, processor=row.processor)
    return _step(
        row.ended_at,
        "execution",
        f"{row.pipeline}/{row.processor} {state}{took}{attempt}{error}",
        phase=row.phase,
        processor=row.processor,
        run_id=encode("run", row.number),
    )


def _dead_letter(dead_letter: TracedDeadLetter) -> Iterator[Step]:
    dead = encode("dl", dead_letter.dead_letter_id)
    error = _error(dead_letter.error_type, dead_letter.error_details)
    run_id = encode("run", dead_letter.subject) if dead_letter.kind == "run" else None
    tried = f"{dead_letter.attempts} attempt{'' if dead_letter.attempts == 1 else 's'}"
    text = f"{_dead_letter_name(dead_letter)} became {dead} after {tried}: {error}"
    yield _step(
        dead_letter.died_at, "dead_letter", text, dead_letter.phase, dead_letter.processor, run_id
    )
    if dead_letter.resolved_at is not None:
        text = f"{dead} {dead_letter.status}" + (
            f": {dead_letter.resolution}" if dead_letter.resolution else ""
        )
        yield _step(
            dead_letter.resolved_at,
            "dead_letter",
            text,
            dead_letter.phase,
            dead_letter.processor,
            run_id,
        )


def _dead_letter_name(dead_letter: TracedDeadLetter) -> str:
    if dead_letter.kind == "run":
        return f"{encode('run', dead_letter.subject)} {dead_letter.processor}"
    if dead_letter.message_id is None:
        return "a report"
    return f"message {dead_letter.message_id} to {dead_letter.subscription}"


def _step(
    at: Micros,
    kind: str,
    text: str,
    phase: str | None = None,
    processor: str | None = None,
    run_id: str | None = None,
) -> Step:
    return Step(
        at=at, kind=kind, flow_id="", phase=phase, processor=processor, text=text, run_id=run_id
    )


def _error(error_type: str | None, details: str | None) -> str:
    value = parsed(details)
    if isinstance(value, dict):
        value = value.get("message")
    message = _short(str(value)) if value else ""
    return ": ".join(part for part in (error_type, message) if part)


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= ERROR_CHARS else words[: ERROR_CHARS - 1] + "…"
