"""Settling of deliveries: ack, nack with a delay, deadline extension, move to the dead letters.

A nack with a delay sets the redelivery time, so it also extends a deadline: the message stays
leased, and its ack is still accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.bus.message import ErrorKind, Nack, SettleResult
from penstock.bus.redelivery import becomes_dead_letter, redelivery_backoff, redelivery_delay
from penstock.bus.transports.nats import naming, policy
from penstock.bus.transports.nats.administration import SubscriptionFacts
from penstock.bus.transports.nats.connection import NatsConnection
from penstock.bus.transports.nats.dead_letters import GivenUp, Mover
from penstock.bus.transports.nats.leases import Leases
from penstock.core.clock import SECOND, Clock, Micros


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery to settle: its subscription and its ticket."""

    facts: SubscriptionFacts
    ticket: naming.Ticket


class Settling:
    """Settles deliveries on the server, unless their ack ids are stale in this process."""

    def __init__(
        self,
        connection: NatsConnection,
        mover: Mover,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._mover = mover
        self._clock = clock
        self._jitter = jitter
        self._leases = Leases()
        self._speed = connection.options.speed

    async def hold(self, held: Held) -> None:
        """Record a delivery and set its redelivery time."""
        spec = held.facts.spec
        if held.ticket.attempt > 1:
            await self._set_timer(held, spec.ack_deadline_us)
        now = self._clock.monotonic()
        self._leases.add(held.ticket, now=now, until=now + self._seconds(spec.ack_deadline_us))

    async def settle(self, held: Held, work: Coroutine[Any, Any, None]) -> SettleResult:
        """Settle a delivery by `work` unless its ack id is stale."""
        if not self._leases.take(held.ticket, self._clock.monotonic()):
            work.close()
            return SettleResult.STALE
        try:
            await work
        except BaseException:
            self._leases.give_back(held.ticket)
            raise
        return SettleResult.DONE

    async def extend(self, held: Held, by_us: Micros) -> SettleResult:
        """Move the deadline of a delivery."""
        now = self._clock.monotonic()
        if not self._leases.extend(held.ticket, now=now, until=now + self._seconds(by_us)):
            return SettleResult.STALE
        await self._set_timer(held, by_us)
        return SettleResult.DONE

    async def ack(self, held: Held) -> None:
        """Ack a message on the server."""
        await self._reply(held, b"+ACK")

    async def nack(self, held: Held, nack: Nack) -> None:
        """Return a message after its backoff, or move it to the dead letters."""
        found = policy.redelivery_policy(held.facts.spec)
        attempt = held.ticket.attempt
        if becomes_dead_letter(found, attempt, nack.kind):
            await self.give_up(held, nack.kind, nack.error_type, nack.error)
            return
        await self.delay(held, redelivery_delay(found, attempt, self._jitter(), nack.delay_us))

    async def delay(self, held: Held, delay_us: Micros) -> None:
        """Make the server redeliver a message after a delay."""
        delay = int(delay_us * 1_000 / self._speed)
        await self._reply(held, b'-NAK {"delay": %d}' % delay if delay else b"-NAK")

    async def give_up(self, held: Held, kind: ErrorKind, error_type: str, error: str) -> None:
        """Move a message to the dead-letter topic, then ack it."""
        spec = held.facts.spec
        cause = GivenUp(
            sequence=held.ticket.place[1],
            attempts=min(held.ticket.attempt, spec.max_attempts),
            kind=kind,
            error_type=error_type,
            error=error,
        )
        await self._mover.move(spec, held.facts.topic, cause)
        await self.ack(held)

    async def _set_timer(self, held: Held, deadline_us: Micros) -> None:
        """Make the server redeliver a message after the deadline plus the attempt's backoff."""
        found = policy.redelivery_policy(held.facts.spec)
        backoff = redelivery_backoff(found, held.ticket.attempt, 0.0)
        await self.delay(held, deadline_us + backoff)

    async def _reply(self, held: Held, body: bytes) -> None:
        """Send a reply to a delivery and wait until the server has stored it."""
        client = await self._connection.client()
        async with self._connection.errors("settling"):
            await client.request(
                held.ticket.reply, body, timeout=self._connection.options.request_seconds
            )

    def _seconds(self, micros: Micros) -> float:
        return micros / SECOND / self._speed
