"""Telemetry: typed events on one stream; logs, the live view and tests subscribe to it.

Emitting never fails and costs nothing without subscribers. An event is a fact that already
happened; nothing may depend on it for correctness.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from penstock.core.naming import ProcessorKey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events; `action` is a stable, machine-readable verb."""

    @property
    def action(self) -> str:
        """The event's name in logs: RunEnded is `run_ended`."""
        name = type(self).__name__
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")

    def as_dict(self) -> dict[str, Any]:
        """Return the event's fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A processor is about to run."""

    run_id: int
    customer_id: str
    processor_key: ProcessorKey
    attempt: int


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """A run's end was stored."""

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
    """Why the run is retried or not."""


@dataclass(frozen=True, slots=True)
class RunRefused(Event):
    """A result came too late: its token was stale and nothing was changed."""

    run_id: int
    token: int


@dataclass(frozen=True, slots=True)
class Ticked(Event):
    """The scheduler started occurrences."""

    due: int
    runs: int
    overlapped: int
    paused: int
    missed: int


@dataclass(frozen=True, slots=True)
class Swept(Event):
    """The sweeper repaired something."""

    sessions: int
    lapsed: int
    stale: int
    timed_out: int
    unblocked: int
    expired: int = 0


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat(Event):
    """A worker tried to renew its session."""

    session_id: int
    renewal: str
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Event):
    """The API responded to a request."""

    request_id: str
    method: str
    path: str
    status: int
    seconds: float
    key: str | None
    customer_id: str | None


@dataclass(frozen=True, slots=True)
class SlotTaken(Event):
    """A slot of a limit was granted, `waited_us` after it was requested."""

    limit: str
    holder: str
    token: int
    waited_us: int


@dataclass(frozen=True, slots=True)
class SlotLeaseLost(Event):
    """A slot was not renewed in time, or was revoked; its holder has been notified."""

    limit: str
    holder: str
    token: int


@dataclass(frozen=True, slots=True)
class QuotaHit(Event):
    """A quota error was reported for a limit; `effective` is its capacity from now on."""

    limit: str
    holder: str
    errors: int
    effective: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPosted(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSent(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRefused(Event):
    """An incoming push was not accepted; the reason is for operators only."""

    subscription: str
    status: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAccepted(Event):
    """An incoming push was stored: published, a duplicate, or kept as poison."""

    subscription: str
    message_id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ServiceError(Event):
    """A service's step failed; the service backs off and retries."""

    service: str
    error: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ServiceStarted(Event):
    """A service's loop started."""

    service: str


@dataclass(frozen=True, slots=True)
class ServiceStopped(Event):
    """A service's loop ended."""

    service: str


class Events:
    """A stream of events with any number of subscribers."""

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[[Event], None], ...] = ()
        self._changing = threading.Lock()

    @property
    def has_subscribers(self) -> bool:
        """Whether there are subscribers; hot loops build no events otherwise."""
        return bool(self._subscribers)

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Add a subscriber; return a function that removes this subscription."""

        def call(event: Event) -> None:
            subscriber(event)

        with self._changing:
            self._subscribers = (*self._subscribers, call)

        def unsubscribe() -> None:
            with self._changing:
                self._subscribers = tuple(s for s in self._subscribers if s is not call)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Call every subscriber; a failure is logged and does not affect the others."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                log.exception("an event subscriber failed on %s", event.action)
