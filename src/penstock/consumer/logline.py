"""One JSON line per message, with the same fields every time; and the alert that wakes somebody.

Names are those that Cloud Logging and the consumers of the source design use. Secrets are masked
on the way out. Writing a line never fails a message.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.consumer.disposition import Disposition
from penstock.consumer.message import Message
from penstock.core.clock import MINUTE, Clock, Micros, iso
from penstock.core.redact import redact_json

ALERT_GAP: Final = MINUTE
"""The same trouble is told again only after this long, with how often it happened since."""

_writing = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who logs."""

    service: str
    env: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A configuration error: nothing of this kind will work until a person mends it."""

    severity: str
    service: str
    env: str
    subscription: str
    handler: str | None
    message_id: str
    error_type: str
    error_code: str | None
    error: str
    at: Micros
    unsaid: int
    """How many more there were since the last alert about the same."""


def line_of(
    identity: Identity,
    message: Message,
    disposition: Disposition,
    *,
    dead_letters: bool,
    mark_place: str,
    at: Micros,
) -> dict[str, Any]:
    """The fields of the line; every one is there, null when it does not apply."""
    is_push = message.via == "push"
    words = disposition.words()
    status = disposition.http_status(dead_letters=dead_letters) if is_push else None
    action = None if is_push else disposition.ack_action(dead_letters=dead_letters)
    published = message.publish_time
    return {
        "severity": disposition.level,
        "time": iso(at),
        "message": f"{words['outcome']} {message.event_type or 'message'} {message.id}",
        "service": identity.service,
        "env": identity.env or None,
        "version": identity.version or None,
        "subscription": message.origin or message.subscription,
        "topic": message.topic,
        "messageId": message.id,
        "publishTime": None if published is None else iso(published),
        "deliveryAttempt": message.attempt,
        "handler": disposition.handler,
        "event_type": message.event_type,
        "schemaVersion": message.schema_version,
        "http_status": status,
        "ack_action": action,
        "idempotency_doc": f"{mark_place}/{message.subscription}/{message.id}",
        **words,
    }


def rendered(line: Mapping[str, Any]) -> str:
    """The line as text, secrets masked."""
    return redact_json(json.dumps(line, default=str))


def to_stdout(line: str) -> None:
    """Write a line where containers' logs are collected."""
    with _writing:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class Alerts:
    """Tells of configuration errors at once, and of the same one again only after a while."""

    def __init__(self, tell: Callable[[Alert], None] | None, clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[tuple[str | None, str], Micros] = {}
        self._unsaid: dict[tuple[str | None, str], int] = {}

    def raised(self, identity: Identity, message: Message, disposition: Disposition) -> None:
        """Tell of a disposition that needs a person; what the hook raises is the caller's."""
        failure = disposition.failure
        if self._tell is None or failure is None or not disposition.is_configuration:
            return
        key = (disposition.handler, failure.error_type)
        now = self._clock.now()
        with self._lock:
            if key in self._last and now - self._last[key] < ALERT_GAP:
                self._unsaid[key] = self._unsaid.get(key, 0) + 1
                return
            self._last[key] = now
            unsaid = self._unsaid.pop(key, 0)
        self._tell(
            Alert(
                severity="CRITICAL",
                service=identity.service,
                env=identity.env,
                subscription=message.subscription,
                handler=disposition.handler,
                message_id=message.id,
                error_type=failure.error_type,
                error_code=failure.error_code,
                error=failure.error,
                at=now,
                unsaid=unsaid,
            )
        )
