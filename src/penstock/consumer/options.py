"""The options of a consumer, checked once and frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from penstock.core.clock import HOUR, SECOND, Clock, Micros, SystemClock, parse_duration
from penstock.core.errors import SettingsError
from penstock.sinks.statements import PREFIX_DEFAULT

MIB: Final = 1_048_576

Duration = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer is run, beside what it does.

    service, env, version: who logs (service: the consumer's name). concurrency: messages handled
    at the same time. outstanding: messages held in all, waiting and gathered ones included.
    payload: what the data must be, a JSON "object", any "json", or "bytes" that are left unread.
    path: where pushes arrive. is_unwrapped: the body is the data. body_max: bytes of a push.
    prefix: of the sink's tables. marks_kept: how long a message is remembered; longer than the
    broker may bring it back. audit_bytes_max: data kept of a message that is given up. extend: to
    how far from now deadlines are moved while a message is being handled, hold_max: for how long
    at most. drain: how long a stop waits. log: takes the JSON lines.
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
    extend: Duration = "60s"
    hold_max: Duration = "1h"
    drain: Duration = "30s"
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

    def micros(self, name: str) -> Micros:
        """One of the durations."""
        value: Duration = getattr(self, name)
        return parse_duration(value, name)

    def seconds(self, name: str) -> float:
        """One of the durations."""
        return self.micros(name) / SECOND
