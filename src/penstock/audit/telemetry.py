"""Telemetry: typed events on one stream; logs, metrics, traces and tests subscribe to it.

Emitting never fails and costs nothing without subscribers. An event is a fact that already
happened; nothing may depend on it for correctness. Facts of a transaction are emitted after its
commit, on the stream of its store (`audit.store.telemetry`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.naming import ProcessorKey

log = logging.getLogger(__name__)

RELEASED_SHOWN: Final = 20


def event_name(kind: type[Event]) -> str:
    """Return the name of a kind of event in logs."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")


class Event(msgspec.Struct, frozen=True):
    """Base of all events; `action` is a stable, machine-readable verb."""

    @property
    def action(self) -> str:
        """The event's name in logs: RunEnded is `run_ended`."""
        return event_name(type(self))

    def as_dict(self) -> dict[str, Any]:
        """Return the event's fields."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class RunStarted(Event, frozen=True):
    """A processor is about to run."""

    run_id: int
    customer_id: str
    processor_key: ProcessorKey
    attempt: int
    flow_id: int | None = None
    correlation_id: str | None = None
    """Correlation id; None if `root_run_id`, the id of the first attempt, is used instead."""
    root_run_id: int = 0
    item_key: str = ""


class RunEnded(Event, frozen=True):
    """The end of a run was stored."""

    run_id: int
    customer_id: str
    processor_key: ProcessorKey
    final_state: str
    error_type: str | None
    retry: bool
    dead: bool
    error_class: str | None = None
    error: str | None = None
    traceback: str | None = None
    why: str | None = None
    """Reason that the run is or is not retried."""
    attempt: int = 1
    flow_id: int | None = None
    correlation_id: str | None = None
    root_run_id: int = 0
    partition: str | None = None
    item_key: str = ""
    waited_us: int = 0
    """Time from when the attempt was due until it was claimed."""
    duration_us: int | None = None
    """Execution time; None if the worker did not measure it."""
    started_at: int | None = None
    records: int | None = None


class CompletedRuns(NamedTuple):
    """Data of completed runs, in columns of the same length."""

    processor_key: Sequence[ProcessorKey]
    customer_id: Sequence[str]
    waited_us: Sequence[int]
    duration_us: Sequence[int | None]
    records: Sequence[int | None]


class RunsEnded(Event, frozen=True):
    """Runs that ended in one transaction; only subscribers that name this kind receive it."""

    completed: CompletedRuns
    """Runs that completed without an error."""
    others: Sequence[RunEnded]
    event_of: Callable[[int], RunEnded]
    """Builds the event of a completed run from its position in the columns."""


class FlowEnded(Event, frozen=True, kw_only=True):
    """A flow ended in a final state."""

    flow_id: int
    customer_id: str
    pipeline: str
    partition: str
    mode: str
    generation: int
    state: str
    correlation_id: str
    trigger_source: str
    started_at: int
    ended_at: int
    message_id: str | None = None
    """The message that opened it."""


class PhaseEnded(Event, frozen=True, kw_only=True):
    """A phase of a flow ended, or its last outstanding processor completed it."""

    flow_id: int
    customer_id: str
    pipeline: str
    phase: str
    mode: str
    state: str
    correlation_id: str
    started_at: int | None
    ended_at: int
    completed: int
    expected: int


class GateDecided(Event, frozen=True, kw_only=True):
    """A gate decided whether a phase, one processor, or a run outside flows may start."""

    customer_id: str
    pipeline: str
    phase: str
    processor: str
    mode: str
    verdict: str
    status: str
    completeness: float
    quality: float
    reason: str
    source: str
    at: int
    flow_id: int | None = None
    run_id: int | None = None
    correlation_id: str = ""
    probed_us: int = 0
    """Duration of its slowest probe."""
    scanned_bytes: int = 0
    checks: dict[str, tuple[int, int]] = {}
    """Number of checked and of missing dependencies, by kind."""
    tries: int = 0


class RunRefused(Event, frozen=True):
    """The result of a run was rejected because its fencing token was stale."""

    run_id: int
    token: int


class RunsReleased(Event, frozen=True):
    """A worker returned runs to the queue, because it drains or could not renew its lease."""

    count: int
    run_ids: tuple[int, ...]
    """The first RELEASED_SHOWN of them."""

    @classmethod
    def of(cls, run_ids: Iterable[int]) -> RunsReleased:
        """Return the event of released runs, in the order of their ids."""
        found = sorted(run_ids)
        return cls(len(found), tuple(found[:RELEASED_SHOWN]))


class Ticked(Event, frozen=True):
    """The scheduler started occurrences."""

    due: int
    runs: int
    overlapped: int
    paused: int
    missed: int


class Swept(Event, frozen=True):
    """The sweeper repaired something."""

    sessions: int
    lapsed: int
    stale: int
    timed_out: int
    unblocked: int
    expired: int = 0


class WorkerHeartbeat(Event, frozen=True):
    """A worker tried to renew its session."""

    session_id: int
    renewal: str
    held: int


class Served(Event, frozen=True, kw_only=True):
    """The API responded to a request."""

    request_id: str
    method: str
    path: str
    status: int
    seconds: float
    key: str | None
    customer_id: str | None
    route: str = ""
    traceparent: str | None = None
    """Trace context that the request contained."""


class SlotTaken(Event, frozen=True):
    """A slot of a limit was granted, `waited_us` after it was requested."""

    limit: str
    holder: str
    token: int
    waited_us: int


class SlotReleased(Event, frozen=True):
    """A slot of a limit was released."""

    limit: str
    holder: str
    token: int


class SlotLeaseLost(Event, frozen=True):
    """A slot's lease was not renewed in time, or was revoked; its holder has been notified."""

    limit: str
    holder: str
    token: int


class QuotaHit(Event, frozen=True):
    """A quota error was reported for a limit; `effective` is its capacity from now on."""

    limit: str
    holder: str
    errors: int
    effective: int | None


class PushPosted(Event, frozen=True, kw_only=True):
    """A message was posted to an endpoint; `outcome` is ack, nack, gone or stale."""

    subscription: str
    customer_id: str
    message_id: int
    attempt: int
    outcome: str
    status: int | None
    failure: str
    seconds: float
    window: int
    traceparent: str = ""
    """Trace context that the request contained."""
    parent: str | None = None
    """The span that published the message."""
    correlation_id: str = ""


class RequestSent(Event, frozen=True, kw_only=True):
    """A run was sent to its endpoint; `outcome` is done, accepted, failed or stale."""

    processor: str
    customer_id: str
    run_id: int
    attempt: int
    outcome: str
    status: int | None
    failure: str
    seconds: float
    window: int
    correlation_id: str = ""


class MessageHandled(Event, frozen=True, kw_only=True):
    """A consumer handled a message."""

    subscription: str
    message_id: str
    outcome: str
    handler: str
    via: str
    attempt: int | None
    error_type: str
    seconds: float
    traceparent: str
    """Trace context in which the message was handled."""
    parent: str | None = None
    """The span that delivered or published the message."""
    correlation_id: str = ""


class PushServed(Event, frozen=True, kw_only=True):
    """A consumer responded to a push request."""

    subscription: str
    status: int


class SinkFailed(Event, frozen=True, kw_only=True):
    """The sink of a consumer failed, not the handler."""

    subscription: str
    error_type: str


class PushRefused(Event, frozen=True, kw_only=True):
    """An incoming push was not accepted; the reason is for operators only."""

    subscription: str
    status: int
    reason: str


class PushAccepted(Event, frozen=True, kw_only=True):
    """An incoming push was stored: published, a duplicate, or kept as poison."""

    subscription: str
    message_id: str
    outcome: str


class ReplicaRead(Event, frozen=True):
    """The read replica, or the primary in its place, served a read that tolerates lag."""

    server: str
    lag_seconds: float | None


class ServiceError(Event, frozen=True):
    """A service's step failed; the service backs off and retries."""

    service: str
    error: str
    seconds: float
    exception: BaseException | None = None


class ServiceStarted(Event, frozen=True):
    """A service's loop started."""

    service: str


class ServiceStopped(Event, frozen=True):
    """A service's loop ended."""

    service: str


class Events:
    """A stream of events with any number of subscribers."""

    def __init__(self) -> None:
        self._subscribers: tuple[tuple[Callable[[Event], None], frozenset[type]], ...] = ()
        self._routes: dict[type, tuple[Callable[[Event], None], ...]] = {}
        self._changing = threading.Lock()

    @property
    def has_subscribers(self) -> bool:
        """Whether there are subscribers."""
        return bool(self._subscribers)

    def wants(self, kind: type[Event]) -> bool:
        """Return whether a kind of event has subscribers; hot loops build no events otherwise."""
        # A kind without subscribers is stored with an empty route, because it is looked up for
        # every run.
        route = self._routes.get(kind)
        return bool(self._route(kind) if route is None else route)

    def subscribe(
        self, subscriber: Callable[[Any], None], kinds: Iterable[type[Event]] = ()
    ) -> Callable[[], None]:
        """Add a subscriber of some kinds of events, or of all; return a function that removes it.

        Subscribers run in the thread that emits: they must be fast and must not wait.
        """
        entry = (subscriber, frozenset(kinds))
        self._change(lambda known: (*known, entry))
        return lambda: self._change(lambda known: tuple(one for one in known if one is not entry))

    def emit(self, event: Event) -> None:
        """Call every subscriber; a failure is logged and does not affect the others."""
        kind = type(event)
        route = self._routes.get(kind)
        for subscriber in self._route(kind) if route is None else route:
            try:
                subscriber(event)
            except Exception:
                log.exception("an event subscriber failed on %s", event.action)

    def _route(self, kind: type) -> tuple[Callable[[Event], None], ...]:
        with self._changing:
            found = self._routes[kind] = tuple(
                call
                for call, kinds in self._subscribers
                if kind in kinds or (not kinds and kind is not RunsEnded)
            )
        return found

    def _change(self, change: Callable[[Any], Any]) -> None:
        with self._changing:
            self._subscribers = change(self._subscribers)
            self._routes = {}


def log_event(logger: logging.Logger, level: int, text: str, event: Event | None) -> None:
    """Log an event where it happens; the event log writes its fields with the line."""
    logger.log(level, text, extra={EVENT: event})


EVENT: Final = "event"
"""Name of the log record attribute that holds the event."""
