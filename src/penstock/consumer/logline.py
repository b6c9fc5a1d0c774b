"""The JSON log line of each message, always with the same fields, and alerts to operators.

Field names are those of Cloud Logging and of the consumers in the source design. Secrets are
masked. A failure to write a line never fails a message.
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

ALERT_INTERVAL_US: Final = MINUTE
"""Minimum time between two alerts about the same error; the next one reports how many were
suppressed.
"""

_writing = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Service name, environment and version in each log line."""

    service: str
    env: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A configuration error that makes messages fail until an operator fixes it."""

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
    suppressed: int
    """Number of suppressed alerts about the same error since the last one."""


def log_fields(
    identity: Identity,
    message: Message,
    disposition: Disposition,
    *,
    dead_letters: bool,
    mark_place: str,
    at: Micros,
) -> dict[str, Any]:
    """Return the fields of a log line; all are present, None if they do not apply."""
    is_push = message.via == "push"
    details = disposition.log_fields()
    status = disposition.http_status(dead_letters=dead_letters) if is_push else None
    action = None if is_push else disposition.ack_action(dead_letters=dead_letters)
    published = message.publish_time
    return {
        "severity": disposition.level,
        "time": iso(at),
        "message": f"{details['outcome']} {message.event_type or 'message'} {message.id}",
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
        **details,
    }


def render_line(line: Mapping[str, Any]) -> str:
    """Return the line as JSON text with secrets masked."""
    return redact_json(json.dumps(line, default=str))


def to_stdout(line: str) -> None:
    """Write a line to stdout, where container platforms collect logs."""
    with _writing:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class AlertReports:
    """Sends alerts about configuration errors, at most one per minute about the same error."""

    def __init__(self, send: Callable[[Alert], None] | None, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[tuple[str | None, str], Micros] = {}
        self._suppressed: dict[tuple[str | None, str], int] = {}

    def send(self, identity: Identity, message: Message, disposition: Disposition) -> None:
        """Send an alert for a configuration error; exceptions of the hook reach the caller."""
        failure = disposition.failure
        if self._send is None or failure is None or not disposition.is_configuration:
            return
        key = (disposition.handler, failure.error_type)
        now = self._clock.now()
        with self._lock:
            if key in self._last and now - self._last[key] < ALERT_INTERVAL_US:
                self._suppressed[key] = self._suppressed.get(key, 0) + 1
                return
            self._last[key] = now
            suppressed = self._suppressed.pop(key, 0)
        self._send(
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
                suppressed=suppressed,
            )
        )
