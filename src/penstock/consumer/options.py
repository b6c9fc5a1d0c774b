"""Options of a consumer, validated once and immutable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.core.clock import HOUR, SECOND, Clock, Duration, Micros, SystemClock, parse_duration
from penstock.core.errors import SettingsError
from penstock.sinks.statements import PREFIX_DEFAULT

MIB: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Operational options of a consumer. Durations are texts such as "30s", or seconds.

    service, env, version: fields of each log line; service and version are also recorded with the
    executions of Penstock's bus. They default to K_SERVICE and K_REVISION, which Cloud Run and
    Knative set, and `service` falls back to the consumer's name.
    concurrency: messages handled at the same time. outstanding: maximum number of messages held,
    including waiting and batched ones; 0 derives it from concurrency and batch sizes.
    payload: required form of the data: a JSON "object", any "json", or "bytes" that are not parsed.
    path: URL path for pushes. is_unwrapped: the body is the data itself, without an envelope.
    body_max: maximum size of a push body in bytes. body_wait: maximum time to receive the body.
    prefix: prefix of the sink's tables. marks_kept: how long dedupe marks are kept; must exceed the
    time in which the broker may redeliver. audit_bytes_max: bytes of data kept of a poison message
    that is dropped. keeps_arrivals: store a visibility record of each message before it is handled,
    and count messages and deliveries. extend: new deadline, from now, while a message is being
    handled. hold_max: maximum time for which deadlines are extended. drain: how long a stop waits
    for messages in progress. telemetry: fields of the setting of that name, such as otlp_endpoint,
    and metrics_port (with metrics_host), on which a pull worker serves its metrics. clock: source
    of time. log: function that receives the JSON lines; default stdout.
    """

    service: str = ""
    env: str = ""
    version: str = ""
    concurrency: int = 8
    outstanding: int = 0
    payload: Literal["object", "json", "bytes"] = "object"
    path: str = "/pubsub/push"
    is_unwrapped: bool = False
    body_max: int = 14 * MIB
    body_wait: Duration = "30s"
    prefix: str = PREFIX_DEFAULT
    marks_kept: Duration = "14d"
    audit_bytes_max: int = 64 * 1024
    keeps_arrivals: bool = False
    extend: Duration = "60s"
    hold_max: Duration = "1h"
    drain: Duration = "30s"
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    log: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("concurrency", 1, 1_000),
            ("outstanding", 0, 100_000),
            ("body_max", 1_024, 1_024 * MIB),
            ("audit_bytes_max", 0, 64 * MIB),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise SettingsError(name, f"a whole number from {low} to {high}", value)
        if self.payload not in ("object", "json", "bytes"):
            raise SettingsError("payload", '"object", "json" or "bytes"', self.payload)
        if not self.path.startswith("/"):
            raise SettingsError("path", "a path that begins with /", self.path)
        if self.micros("marks_kept") < HOUR:
            raise SettingsError("marks_kept", "an hour or more", self.marks_kept)
        if not 10 * SECOND <= self.micros("extend") <= 600 * SECOND:
            raise SettingsError("extend", "10 to 600 seconds", self.extend)

    def deployed(self, name: str) -> tuple[str, str]:
        """Return the service, else the given name, and its version, "" if unknown."""
        service = self.service or os.environ.get("K_SERVICE") or name
        return service, self.version or os.environ.get("K_REVISION", "")

    def micros(self, name: str) -> Micros:
        """Return a duration option in microseconds."""
        value: Duration = getattr(self, name)
        return parse_duration(value, name)

    def seconds(self, name: str) -> float:
        """Return a duration option in seconds."""
        return self.micros(name) / SECOND
