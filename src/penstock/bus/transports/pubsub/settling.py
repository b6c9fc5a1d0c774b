"""Settling on Pub/Sub: sends acks, nacks and deadlines, and reports which took effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from penstock.bus import redelivery, rules
from penstock.bus.message import ErrorKind, Nack, SettleResult, SubscriptionSpec
from penstock.bus.transports.pubsub import tickets
from penstock.bus.transports.pubsub.connection import PubsubConnection, StaleAckIds
from penstock.bus.transports.pubsub.poison import PoisonCopies
from penstock.bus.transports.pubsub.resources import Resources
from penstock.bus.transports.pubsub.tickets import PubsubTicket, Tickets
from penstock.core.clock import SECOND, Clock
from penstock.core.errors import InvalidInput, TransportUnavailable

EXTENSION_MAX_S: Final = 600
REPEATS_MAX: Final = 5
DONE, STALE = SettleResult.DONE, SettleResult.STALE


class PubsubSettling:
    """Settles deliveries of one project."""

    def __init__(
        self,
        connection: PubsubConnection,
        resources: Resources,
        held: Tickets,
        poison: PoisonCopies,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._resources = resources
        self._tickets = held
        self._poison = poison
        self._clock = clock

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        """Move the deadline to `seconds` from now."""
        until = self._clock.now() + seconds * SECOND
        return self._settle(
            subscription,
            ack_ids,
            note=lambda one: self._tickets.extend(one, until),
            send=lambda raws: self.modify(subscription, raws, seconds),
        )

    def ack(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Ack deliveries."""
        return self._settle(
            subscription,
            ack_ids,
            note=lambda one: self._tickets.settle(one, self._clock.now(), is_failure=False),
            send=lambda raws: self._ack(subscription, raws),
        )

    def nack(self, subscription: str, nacks: Sequence[Nack]) -> list[SettleResult]:
        """Nack deliveries; poison is copied to the dead-letter topic and acked."""
        found = _decoded([nack.ack_id for nack in nacks])
        facts = self._resources.facts(subscription)
        held = {ticket.raw: ticket for ticket in found}
        by_raw: dict[str, Nack] = {}
        for ticket, nack in zip(found, nacks, strict=True):
            by_raw.setdefault(ticket.raw, nack)

        def delay(raw: str) -> int:
            return self._delay(facts, held[raw], by_raw[raw])

        def send(raws: list[str]) -> set[str]:
            poison = [raw for raw in raws if self._poison.takes(facts, raw, by_raw[raw])]
            self._poison.copy(facts, [(raw, by_raw[raw]) for raw in poison])
            stale = self._ack(subscription, poison) if poison else set[str]()
            rest = sorted((raw for raw in raws if raw not in set(poison)), key=delay)
            for seconds, group in groupby(rest, key=delay):
                stale |= self.modify(subscription, list(group), seconds)
            return stale

        def note(ticket: PubsubTicket) -> None:
            is_poison = by_raw[ticket.raw].kind is ErrorKind.POISON
            is_failure = not (is_poison and facts.dead_letter_topic is not None)
            self._tickets.settle(ticket, self._clock.now(), is_failure=is_failure)

        return self._settle(subscription, [nack.ack_id for nack in nacks], note=note, send=send)

    def _settle(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        note: Callable[[PubsubTicket], None],
        send: Callable[[list[str]], set[str]],
    ) -> list[SettleResult]:
        """Settle the ack ids that are not stale; `send` returns those that the service rejected.

        `note` is called with each accepted one.
        """
        found = _decoded(ack_ids)
        if not found:
            self._resources.read_subscription(subscription)
            self._resources.facts(subscription)
            return []
        now = self._clock.now()
        taken: dict[str, PubsubTicket] = {}
        is_sent = []
        for ticket in found:
            is_own = ticket.subscription == subscription and ticket.raw not in taken
            is_sent.append(is_own and self._tickets.is_current(ticket, now))
            if is_sent[-1]:
                taken[ticket.raw] = ticket
        refused = send(list(taken)) if taken else set[str]()
        for ticket in taken.values():
            note(ticket)
        return [
            DONE if sent and ticket.raw not in refused else STALE
            for ticket, sent in zip(found, is_sent, strict=True)
        ]

    def _delay(self, facts: SubscriptionSpec, ticket: PubsubTicket, nack: Nack) -> int:
        """Return the seconds by which a nack is delayed: the part of the requested delay that
        exceeds the backoff.
        """
        policy = redelivery.RedeliveryPolicy(
            min_backoff_us=facts.min_backoff_us,
            max_backoff_us=facts.max_backoff_us,
            max_attempts=facts.max_attempts,
            has_dead_letters=facts.dead_letter_topic is not None,
        )
        backoff = redelivery.redelivery_backoff(policy, self._tickets.attempt(ticket), 0.0)
        left = math.ceil(((nack.delay_us or 0) - backoff) / SECOND)
        return min(max(left, 0), EXTENSION_MAX_S)

    def _ack(self, subscription: str, raws: list[str]) -> set[str]:
        from google.pubsub_v1 import types  # an optional dependency

        path = self._resources.path("subscriptions", subscription)
        request = types.AcknowledgeRequest(subscription=path, ack_ids=raws)
        refused = self._refused(self._connection.subscriber().acknowledge, request, path)
        self._poison.forget(raws)
        return refused

    def modify(self, subscription: str, raws: list[str], seconds: int) -> set[str]:
        """Move the deadlines of Google's ack ids; return those that the service rejected."""
        from google.pubsub_v1 import types  # an optional dependency

        path = self._resources.path("subscriptions", subscription)
        request = types.ModifyAckDeadlineRequest(
            subscription=path, ack_ids=raws, ack_deadline_seconds=seconds
        )
        return self._refused(self._connection.subscriber().modify_ack_deadline, request, path)

    def _refused(self, stub: Any, request: Any, path: str) -> set[str]:
        """Make a call about ack ids; return those that exactly-once delivery reports as stale.

        Those that failed temporarily are sent again.
        """
        stale: set[str] = set()
        for _ in range(REPEATS_MAX):
            try:
                self._connection.call(stub, request, path)
            except StaleAckIds as error:
                stale |= error.stale
                if not error.failed:
                    return stale
                request.ack_ids = sorted(error.failed)
            else:
                return stale
        raise TransportUnavailable(f"Pub/Sub did not settle {len(request.ack_ids)} messages")


def _decoded(ack_ids: Sequence[str]) -> list[PubsubTicket]:
    if len(ack_ids) > rules.BATCH_MAX:
        raise InvalidInput("ack_ids", f"at most {rules.BATCH_MAX} per call", len(ack_ids))
    return [tickets.decode(text, f"ack_ids[{index}]") for index, text in enumerate(ack_ids)]
