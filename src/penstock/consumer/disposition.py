"""The outcome of a message as an HTTP status (push) or as an ack or nack (pull).

The subscription's dead-letter policy decides what happens to poison: with a policy the message is
refused and dead-lettered; without one it is acked, because the broker would retry it forever.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from penstock.bus.message import ErrorKind, Handled, Nack, Outcome, SubscriptionSpec
from penstock.bus.transports.protocol import Transport
from penstock.consumer.failure import Failure
from penstock.consumer.message import Message
from penstock.core.clock import Clock, Micros
from penstock.core.errors import NotFound
from penstock.core.records.record import seconds

ACK: Final = "ack"
NACK: Final = "nack"
DEAD_LETTER: Final = "dead_letter"
REFRESH_SECONDS: Final = 300.0
log = logging.getLogger(__name__)


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
    duration_us: Micros | None = None
    """Time that handling took, excluding the wait for a thread or for the rest of a batch."""

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

    @property
    def handled(self) -> Handled:
        """What the execution log records about the handling."""
        duration = None if self.duration_us is None else seconds(self.duration_us)
        return Handled(outcome=self.outcome, duration=duration)

    def nack(self, ack_id: str) -> Nack:
        """Return the nack of a pulled message, with its reason."""
        assert self.failure is not None, self
        return Nack(
            ack_id=ack_id,
            kind=self.failure.kind,
            error_type=self.failure.error_type,
            error=self.failure.error,
            delay=None if self.failure.delay_us is None else seconds(self.failure.delay_us),
            handled=self.handled,
        )

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of the log line that describe the outcome."""
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


class PolicyFacts:
    """Dead-letter policy of the broker, read from the subscription itself.

    A pull worker reads the policy from its transport before the first pull and every few minutes.
    Messages report whether there is a dead-letter topic if the broker says so (Penstock's bus,
    NATS, push envelopes with a delivery attempt). A value that the program sets overrides both.
    """

    def __init__(self, subscription: str, stated: bool | None, clock: Clock) -> None:
        self.subscription = subscription
        self.stated = stated
        self.spec: SubscriptionSpec | None = None
        self._seen = False
        self._clock = clock
        self._read_at: float | None = None

    def read(self, transport: Transport) -> None:
        """Read the policy from the broker if due; raise NotFound if the subscription does not
        exist.
        """
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < REFRESH_SECONDS:
            return
        spec = transport.read_subscription(self.subscription)
        if spec is None:
            raise NotFound("subscription", self.subscription)
        if self._read_at is None and spec.dead_letter_topic is None and self.stated is None:
            log.warning(
                "subscription %s has no dead-letter topic: poison is kept as audit records only",
                self.subscription,
            )
        self.spec, self._read_at = spec, now

    def has_dead_letters(self, message: Message) -> bool:
        """Return whether the message's subscription keeps poison messages as dead letters.

        For an unreadable body, the policy of the previous messages applies.
        """
        if message.has_dead_letters is not None:
            self._seen = message.has_dead_letters
        if self.stated is not None:
            return self.stated
        if message.has_dead_letters is None and self.spec is not None:
            return self.spec.dead_letter_topic is not None
        return self._seen
