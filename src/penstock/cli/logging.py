"""Log the events of a serving process, as text lines or JSON lines.

`EventLog` subscribes to the process's event stream. Text output is limited to LINES_PER_SECOND for
frequent events; the rest are counted, and one line reports the counts. An error that makes many
services fail, such as an outage of the database, has one line in ERROR_SECONDS; the next line names
the services that failed since. JSON output and what is exported are complete.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from penstock.audit.telemetry import (
    EVENT,
    Event,
    Events,
    FlowEnded,
    GateDecided,
    MessageHandled,
    PhaseEnded,
    PushAccepted,
    PushPosted,
    PushRefused,
    PushServed,
    QuotaHit,
    RequestSent,
    RunEnded,
    RunRefused,
    RunsReleased,
    RunStarted,
    Served,
    ServiceError,
    SinkFailed,
    SlotLeaseLost,
    SlotReleased,
    SlotTaken,
    Swept,
    Ticked,
    WorkerHeartbeat,
)
from penstock.cli.log_writer import LogWriter
from penstock.cli.output import error_text, escape_control, plural
from penstock.core.clock import SECOND, Clock, SystemClock, iso, to_datetime
from penstock.core.ids import encode
from penstock.core.redact import redact_json, redact_text
from penstock.telemetry.log_lines import LogSink, log_line
from penstock.telemetry.processor_names import ProcessorNames, unknown_name

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings
    from penstock.cli.app import App
    from penstock.client import Client

LINES_PER_SECOND = 20
ERROR_SECONDS = 10
NAMES_MAX = 6
"""Maximum number of services that a line about repeated errors names."""
LEVELS = ("debug", "info", "warning", "error")


class EventLog:
    """Event subscriber that writes one log line per event, and counts the excess."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        as_json: bool,
        level: str = "info",
        name_of: Callable[[int], str] = str,
        clock: Clock | None = None,
        export: LogSink | None = None,
    ) -> None:
        """`export` also receives every line, as a record."""
        self._export = export
        self._write = write
        self._as_json = as_json
        self._level = LEVELS.index(level)
        self._name_of = name_of
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._second = 0
        self._lines = 0
        self._suppressed: Counter[str] = Counter()
        self._repeated = RepeatedErrors()

    @classmethod
    @contextlib.contextmanager
    def attached(
        cls,
        app: App,
        settings: Settings,
        events: Events,
        client: Client,
        export: LogSink | None = None,
    ) -> Iterator[None]:
        """Log the process's events and the records of standard logging while the block runs.

        export: also receives every line, as a record.
        """
        as_json = app.is_json or settings.log_format == "json"
        level = "warning" if app.is_quiet else settings.log_level
        writer = LogWriter(click.echo, lambda count: log.dropped_line(count))
        log = cls(writer.put, as_json=as_json, level=level, name_of=_names(client), export=export)
        leave = events.subscribe(log, logged_kinds(level))
        handler = _Handler(log)
        root = logging.getLogger()
        before = root.level
        root.addHandler(handler)
        root.setLevel(getattr(logging, level.upper()))
        try:
            with writer:
                yield
                log.flush()
        finally:
            root.removeHandler(handler)
            root.setLevel(before)
            leave()

    def __call__(self, event: Event) -> None:
        """Write the event's line unless its level is too low or the rate limit is reached."""
        level, text = describe_event(event, self._name_of)
        if LEVELS.index(level) < self._level:
            return
        record = {"action": event.action, **_public(event, self._name_of)}
        trace = event.traceback if isinstance(event, RunEnded) else None
        if isinstance(event, ServiceError) and not self._as_json:
            with self._lock:
                repeats = self._repeated.count(event, self._clock.now())
            if repeats is None:
                self._send(self._clock.now(), level, text, record)
                return
            text += repeats
        many = isinstance(
            event, RunStarted | RunEnded | Served | PushPosted | PushRefused | RequestSent
        )
        self.write(level, text, record, is_one_of_many=many, trace=trace)

    def write(
        self,
        level: str,
        text: str,
        record: dict[str, Any],
        *,
        is_one_of_many: bool = False,
        trace: str | None = None,
    ) -> None:
        """Write one line; a frequent one (`is_one_of_many`) beyond the rate limit is counted."""
        now = self._clock.now()
        self._send(now, level, text, record)
        with self._lock:
            if now // 1_000_000 != self._second:
                old = now - 3 * ERROR_SECONDS * SECOND
                self._write_suppressed(now, self._repeated.forget(old))
                self._second, self._lines = now // 1_000_000, 0
            self._lines += 1
            if is_one_of_many and self._lines > LINES_PER_SECOND and not self._as_json:
                self._suppressed[_counted(record)] += 1
                return
        self._put(now, level, text, record)
        if trace and not self._as_json:
            for line in redact_text(trace).rstrip().splitlines():
                self._write(f"           | {escape_control(line)}")

    def _send(self, now: int, level: str, text: str, record: dict[str, Any]) -> None:
        """Pass a line to the exporter, which gets those without a line of text too."""
        if self._export is not None:
            self._export(log_line(now, level, redact_text(text), record))

    def flush(self) -> None:
        """Write the counts of suppressed lines."""
        with self._lock:
            now = self._clock.now()
            self._write_suppressed(now, self._repeated.forget(now + 1))

    def _write_suppressed(self, now: int, failures: Counter[str]) -> None:
        counts = [f"{n:,} {state.lower()}" for state, n in self._suppressed.items()]
        counts += [_failures_text(failures)] if failures else []
        if counts:
            self._suppressed = Counter()
            self._put(now, "info", f"… and {', '.join(counts)}", {})

    def dropped_line(self, count: int) -> str:
        """Return the line that reports lines dropped because the log was not read."""
        text = f"{plural(count, 'log line')} dropped: nothing read the output"
        record = {"action": "log_dropped", "lines": count}
        return self._line(self._clock.now(), "warning", text, record)

    def _put(self, now: int, level: str, text: str, record: dict[str, Any]) -> None:
        self._write(self._line(now, level, text, record))

    def _line(self, now: int, level: str, text: str, record: dict[str, Any]) -> str:
        if self._as_json:
            line = json.dumps({"at": iso(now), "level": level, **record}, default=str)
            return redact_json(line)
        mark = {"warning": "! ", "error": "! "}.get(level, "")
        shown = escape_control(redact_text(text))
        return f"{to_datetime(now).strftime('%H:%M:%SZ')}  {mark}{shown}"


class RepeatedErrors:
    """Failures of services that have the same error, counted between the lines that report them."""

    def __init__(self) -> None:
        self._reported_at: dict[str, int] = {}
        self._since: dict[str, Counter[str]] = {}

    def count(self, event: ServiceError, now: int) -> str | None:
        """Return what the line of a failure adds about those before it; None if it has no line."""
        reported_at = self._reported_at.get(event.error)
        # A clock that was set back reports again.
        if reported_at is not None and 0 <= now - reported_at < ERROR_SECONDS * SECOND:
            self._since[event.error][event.service] += 1
            return None
        before = self._since.get(event.error)
        self._reported_at[event.error] = now
        self._since[event.error] = Counter()
        return f" (and before: {_failures_text(before)})" if before else ""

    def forget(self, before: int) -> Counter[str]:
        """Forget errors reported before a time; return their counted failures by service."""
        found: Counter[str] = Counter()
        for error in [error for error, at in self._reported_at.items() if at < before]:
            del self._reported_at[error]
            found += self._since.pop(error)
        return found


def _failures_text(by_service: Counter[str]) -> str:
    names = sorted(by_service)
    shown = ", ".join(names[:NAMES_MAX])
    others = f" and {plural(len(names) - NAMES_MAX, 'other')}" if len(names) > NAMES_MAX else ""
    return f"{plural(by_service.total(), 'failure')} of {shown}{others}"


def logged_kinds(level: str) -> list[type[Event]]:
    """Return the events that a log of a level subscribes to.

    Events that code logs itself (`log_event`) are excluded.
    """
    own = {FlowEnded, GateDecided, MessageHandled, PhaseEnded, PushServed, QuotaHit, SinkFailed}
    own |= {SlotLeaseLost, SlotReleased, SlotTaken} | (set() if level == "debug" else {RunStarted})
    return [kind for kind in Event.__subclasses__() if kind not in own]


def _counted(record: dict[str, Any]) -> str:
    """Return the category under which a suppressed line is counted."""
    if record.get("action") == "served":
        return "requests"
    if str(record.get("action")).startswith("push_"):
        return "pushes"
    return str(record.get("final_state") or "started")


def describe_event(event: Event, name_of: Callable[[int], str] = str) -> tuple[str, str]:
    """Return the log level and the text of an event."""
    if isinstance(event, RunStarted):
        tries = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        what = f"{name_of(event.processor_key)} for {event.customer_id}{tries}"
        return "debug", f"{encode('run', event.run_id)} started: {what}"
    if isinstance(event, RunEnded):
        return _ended(event, name_of)
    if isinstance(event, Ticked):
        more = [f"{n:,} {word}" for n, word in ((event.overlapped, "skipped, still running"),
                (event.paused, "paused"), (event.missed, "missed earlier")) if n]  # fmt: skip
        extra = f" ({', '.join(more)})" if more else ""
        runs, configs = plural(event.runs, "run"), plural(event.due, "due config")
        return "info", f"scheduler started {runs} of {configs}{extra}"
    if isinstance(event, Swept):
        words = [plural(event.sessions, "session")] if event.sessions else []
        words += [f"{getattr(event, name):,} {name.replace('_', ' ')}"
                  for name in ("lapsed", "stale", "timed_out", "unblocked", "expired")
                  if getattr(event, name)]  # fmt: skip
        return "warning", f"sweeper repaired: {', '.join(words) or 'pauses'}"
    if isinstance(event, WorkerHeartbeat):
        level = "debug" if event.renewal == "renewed" else "warning"
        return level, f"worker session {event.renewal}, {plural(event.held, 'run')} held"
    if isinstance(event, RunRefused):
        return (
            "warning",
            f"{encode('run', event.run_id)} reported too late: its result was rejected",
        )
    if isinstance(event, Served):
        return _served(event)
    if isinstance(event, PushPosted):
        level = "debug" if event.outcome == "ack" else "warning"
        result = event.failure or event.status
        return level, f"push {event.subscription}: {event.message_id} {event.outcome} ({result})"
    if isinstance(event, RequestSent):
        level = "warning" if event.outcome in ("failed", "stale") else "info"
        result = event.failure or event.status
        shown = encode("run", event.run_id)
        return level, f"{shown} sent: {event.processor} {event.outcome} ({result})"
    if isinstance(event, PushRefused):
        return "warning", f"push to {event.subscription} refused ({event.status}): {event.reason}"
    if isinstance(event, PushAccepted):
        level = "error" if event.outcome == "kept" else "debug"
        result = "stored as poison" if event.outcome == "kept" else event.outcome
        return level, f"push to {event.subscription}: {event.message_id or 'a message'} {result}"
    if isinstance(event, ServiceError):
        again = f"; retrying in {event.seconds:.1f} s" if event.seconds else ""
        return "error", f"{event.service} failed: {' '.join(event.error.split())}{again}"
    if isinstance(event, RunsReleased):
        shown = ", ".join(encode("run", run_id) for run_id in event.run_ids)
        rest = event.count - len(event.run_ids)
        others = f" and {rest:,} more" if rest else ""
        return "info", f"{plural(event.count, 'run')} released, for another worker: {shown}{others}"
    return "debug", event.action.replace("_", " ") + "".join(
        f" {v}" for v in event.as_dict().values()
    )


def _served(event: Served) -> tuple[str, str]:
    level = "error" if event.status >= 500 and event.status != 503 else "info"
    if not event.path.startswith("/api/") and event.status < 500:
        level = "debug"  # health checks and scrapes
    who = f" ({event.key})" if event.key else ""
    took = f"{event.seconds * 1000:.0f} ms"
    return level, f"{event.method} {event.path} {event.status} {took}{who}"


def _ended(event: RunEnded, name_of: Callable[[int], str]) -> tuple[str, str]:
    run = encode("run", event.run_id)
    what = f"{name_of(event.processor_key)} for {event.customer_id}"
    if event.error_type is None:
        return "info", f"{run} {event.final_state.lower()}: {what}"
    error = error_text(event.error_type, event.error_class, event.error)
    failed = f"{run} {event.final_state.lower()} ({error}): {what}"
    if event.dead:
        return "error", f"{failed}; dead letter, see `penstock runs show {run}`"
    return "warning", f"{failed}; {'will be retried' if event.retry else 'not retried'}"


def _public(event: Event, name_of: Callable[[int], str]) -> dict[str, Any]:
    """Return the event's fields with public ids and names instead of internal keys."""
    fields = event.as_dict()
    if isinstance(event, RunStarted | RunEnded):
        pipeline, _, processor = name_of(event.processor_key).partition("/")
        fields |= {"pipeline": pipeline, "processor": processor or pipeline}
        if fields.pop("root_run_id") and event.correlation_id is None:
            fields["correlation_id"] = encode("run", event.root_run_id)
    fields.pop("exception", None)
    if fields.get("flow_id") is not None:
        fields["flow_id"] = encode("flow", fields["flow_id"])
    if isinstance(event, RunsReleased):
        fields["run_ids"] = [encode("run", run_id) for run_id in event.run_ids]
    if isinstance(event, RunEnded):
        fields |= {"retry": bool(event.retry), "dead": bool(event.dead)}
        optional = ("error_class", "error", "traceback", "why")
        fields = {k: v for k, v in fields.items() if v is not None or k not in optional}
    if fields.get("run_id") is not None:
        fields["run_id"] = encode("run", fields["run_id"])
    return fields


def _names(client: Client) -> Callable[[int], str]:
    """Return the lookup of `pipeline/processor` by the key of a processor."""
    names = ProcessorNames(client.views.processor_paths)

    def name_of(key: int) -> str:
        found = names(key)
        return found.processor if found == unknown_name(key) else f"{found[0]}/{found[2]}"

    return name_of


class _Handler(logging.Handler):
    """Logging handler that writes the records of processors and libraries to the event log."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one log record, with the run id if it has one."""
        level = {"CRITICAL": "error"}.get(record.levelname, record.levelname.lower())
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        event = getattr(record, EVENT, None)
        if isinstance(event, Event):
            fields = {"action": event.action, **_public(event, str), "message": text}
            self._log.write(_known(level), text, fields)
            return
        run_id = getattr(record, "run_id", None)
        shown = f"{run_id} {text}" if run_id else text
        extra = {"run_id": run_id} if run_id else {}
        fields = {"action": "log", "logger": record.name, "message": text, **extra}
        self._log.write(_known(level), shown, fields)


def _known(level: str) -> str:
    return level if level in LEVELS else "info"
