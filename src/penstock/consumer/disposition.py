"""The outcome of a message as an HTTP status (push) or as an ack or nack (pull).

The subscription's dead-letter policy decides what happens to poison: with a policy the message is
refused and dead-lettered; without one it is acked, because refusing it would repeat it forever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.bus.message import ErrorKind, Nack
from penstock.consumer.failure import Failure
from penstock.core.clock import Micros
from penstock.core.records.record import seconds

ACK: Final = "ack"
NACK: Final = "nack"
DEAD_LETTER: Final = "dead_letter"


class Outcome(StrEnum):
    """How the handling of a delivery ended."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE_IGNORED = "stale_ignored"
    WAITING = "waiting"
    """The gate of the processor waits for data; the next message or check evaluates it again."""
    POISON = "poison"
    RETRY = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition:
    """Outcome of a delivery, the writes it made, and its failure, if any."""

    outcome: Outcome
    handler: str | None = None
    write_kind: str | None = None
    doc_paths: tuple[str, ...] = ()
    failure: Failure | None = None
    has_dead_letters: bool = False
    """Whether the message's subscription has a dead-letter policy."""

    @property
    def is_configuration(self) -> bool:
        """Whether the failure is a configuration error that an operator must fix."""
        return self.failure is not None and self.failure.kind is ErrorKind.CONFIGURATION

    @property
    def delay_us(self) -> Micros | None:
        """Minimum delay before the next attempt in microseconds; None if unspecified."""
        return None if self.failure is None else self.failure.delay_us

    @property
    def level(self) -> str:
        """Log severity: CRITICAL for configuration errors, ERROR for poison and retries."""
        if self.is_configuration:
            return "CRITICAL"
        return "ERROR" if self.outcome in (Outcome.POISON, Outcome.RETRY) else "INFO"

    def http_status(self, *, dead_letters: bool) -> int:
        """Return the HTTP status of the response to a push."""
        if self.outcome is Outcome.RETRY:
            return 500
        if self.outcome is Outcome.POISON and dead_letters:
            return 400 if self.failure is not None and self.failure.is_malformed else 422
        return 200

    def ack_action(self, *, dead_letters: bool) -> str:
        """Return how a pulled message is settled: ack, nack or dead_letter."""
        if self.outcome is Outcome.RETRY:
            return NACK
        if self.outcome is Outcome.POISON and dead_letters:
            return DEAD_LETTER
        return ACK

    def nack(self, ack_id: str) -> Nack:
        """Return the nack of a pulled message, with its reason."""
        assert self.failure is not None, self
        return Nack(
            ack_id=ack_id,
            kind=self.failure.kind,
            error_type=self.failure.error_type,
            error=self.failure.error,
            delay=None if self.failure.delay_us is None else seconds(self.failure.delay_us),
        )

    def log_fields(self) -> dict[str, Any]:
        """Return the outcome's fields of the log line."""
        failure = self.failure
        paths = self.doc_paths
        return {
            "outcome": self.outcome.value,
            "write_kind": self.write_kind,
            "doc_path": paths[0] if len(paths) == 1 else list(paths) or None,
            "error_type": None if failure is None else failure.error_type,
            "error_code": None if failure is None else failure.error_code,
            "error": None if failure is None else failure.error,
            "retryable": None if failure is None else failure.kind is not ErrorKind.POISON,
        }
