"""Requests in flight of one process, shared between endpoints of push subscriptions and processors.

Every endpoint has an adaptive window (`bus.push.adaptive_concurrency`); slow endpoints of one owner
never use up the requests of another.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from penstock.bus.push.adaptive_concurrency import (
    ConcurrencyWindow,
    additional_requests,
    customer_share,
)


@dataclass(slots=True)
class EndpointState:
    """State of one endpoint in this process; its key is that of a subscription or a processor."""

    text: str
    window: ConcurrencyWindow
    owner: int = 0
    """Key of the owner: a customer, or the pipeline of a processor."""
    held: int = 0
    not_before: float = 0.0
    unacked: int = 0
    """Number of consecutive responses or failures without an ack."""
    is_clean: bool = False
    """Whether the last response was a success, so that no alert about the endpoint is open."""


@dataclass(slots=True)
class RequestsInFlight:
    """Requests in flight per endpoint; modify it only under the lock."""

    most: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    endpoints: dict[int, EndpointState] = field(default_factory=dict)
    ready: frozenset[int] = frozenset()

    @property
    def free(self) -> int:
        """Number of requests that may still be started."""
        return self.most - sum(one.held for one in self.endpoints.values())

    def take(self, number: int, now: float) -> int:
        """Reserve the requests that an endpoint may start now; return how many."""
        endpoint = self.endpoints[number]
        if now < endpoint.not_before:
            return 0
        held: Counter[int] = Counter()
        idle: Counter[int] = Counter()
        for key, one in self.endpoints.items():
            held[one.owner] += one.held
            if key in self.ready and key != number and not one.held:
                idle[one.owner] += 1
        share = customer_share(self.most)
        # A customer's idle endpoints reserve no more than that customer may still start.
        reserved = sum(min(n, share - held[owner]) for owner, n in idle.items())
        free = min(self.most - held.total(), share - held[endpoint.owner])
        took = additional_requests(endpoint.window, held=endpoint.held, free=free, idle=reserved)
        endpoint.held += took
        return took
