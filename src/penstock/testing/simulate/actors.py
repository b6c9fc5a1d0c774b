"""Actors of a simulated history: services and their environment, stepped by a seeded scheduler."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from penstock.testing.simulate.faults import Fault, FaultyStore

ERRORS = (
    "TRANSIENT_NETWORK",
    "SERVICE_UNAVAILABLE",
    "RATE_LIMIT_EXCEEDED",
    "VALIDATION_ERROR",
    "SOMETHING_ELSE",
)


class Stage(Protocol):
    """The part of the simulation that an actor can access."""

    clock: VirtualClock
    rng: random.Random
    delivered: list[int]
    accepted: list[int]

    def fault_occurs(self, fault: Fault, odds: float) -> bool:
        """Whether an environment fault happens now."""
        ...

    def store_for(self, actor: str) -> FaultyStore:
        """Return an actor's view of the store."""
        ...


class Actor:
    """A process that takes a `step` when it is due."""

    kind = "service"

    def __init__(self, stage: Stage, name: str, period_us: int) -> None:
        self.stage = stage
        self.name = name
        self.period_us = period_us
        self.next_at = stage.clock.now() + stage.rng.randrange(period_us)
        self.sessions: set[int] = set()
        self.store: Store = stage.store_for(name)
        self.is_recovering = False

    def step(self) -> None:
        """Perform the due work."""
        raise NotImplementedError

    def start(self) -> None:
        """Start a new process, with empty memory."""

    def schedule_next(self) -> None:
        """Schedule the next step, with jitter."""
        self.next_at = self.stage.clock.now() + round(
            self.period_us * self.stage.rng.uniform(0.5, 1.5)
        )


class ServiceActor(Actor):
    """A service of the engine; `make` builds a new one after each crash."""

    def __init__(
        self, stage: Stage, name: str, period_us: int, kind: str, make: Callable[[Store], Any]
    ) -> None:
        super().__init__(stage, name, period_us)
        self.kind = kind
        self._make = make
        self.service: Any = None
        self.start()

    def start(self) -> None:
        """Build a new service."""
        self.service = self._make(self.store)

    def step(self) -> None:
        """Call `run_once`."""
        self.service.run_once()
