"""Transports under one suite: each provides a rig that advances time in its own way.

A test checks the rig's capabilities before it relies on more than at-least-once delivery. Another
broker joins by adding its rig to `RIGS`; its capabilities say what it cannot do.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import (
    DEAD_LETTER_SUFFIX,
    Delivery,
    NewMessage,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.bus.transports.protocol import Transport
from penstock.core.clock import SECOND
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.testing.clock import VirtualClock


@dataclass(frozen=True, slots=True)
class Rig:
    """A transport, another connection to the same broker, and how to advance time for both."""

    bus: Transport
    other: Transport
    pass_seconds: Callable[[float], None]

    def declare(self, name: str = "work", **more: object) -> str:
        """Declare a subscription called `name` on its own topic, with a dead-letter subscription.

        Returns the topic's name; `<name>.dead` reads the dead letters.
        """
        topic, dead = f"{name}-topic", f"{name}{DEAD_LETTER_SUFFIX}"
        more = {"dead_letter_topic": dead, **more}
        self.bus.declare(
            [TopicSpec(name=topic), TopicSpec(name=dead)],
            [
                SubscriptionSpec(name=name, topic=topic, **more),  # type: ignore[arg-type]
                SubscriptionSpec(name=f"{name}.dead", topic=dead),
            ],
        )
        return topic

    def publish(self, topic: str, *bodies: str, **more: object) -> list[str]:
        """Publish small messages."""
        made = [NewMessage(data=body.encode(), **more) for body in bodies]  # type: ignore[arg-type]
        return self.bus.publish(topic, made)

    def pull(self, name: str = "work", n: int = 100) -> list[Delivery]:
        """Return the messages that are ready now, without waiting."""
        return self.bus.pull(name, max_messages=n)

    def one(self, name: str = "work") -> Delivery:
        """Return the only ready message."""
        (found,) = self.pull(name)
        return found


def bodies(deliveries: Sequence[Delivery]) -> list[str]:
    """Return the delivered content as text."""
    return [delivery.data.decode() for delivery in deliveries]


def embedded(engine: str, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The embedded bus on one engine, under a clock that the rig advances."""
    clock: VirtualClock = request.getfixturevalue("clock")
    store: Store
    if engine == "postgres":
        store = PostgresStore(request.getfixturevalue("pg_migrated_dsn"), clock)
    elif engine == "postgres-plain":
        dsn = request.getfixturevalue("pg_migrated_dsn")
        store = PostgresStore(dsn, clock, is_pipelined=False)
    else:
        path = request.getfixturevalue("tmp_path") / "penstock.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        store = SqliteStore(path, clock)
    sweeper = DeliverySweeper(store, jitter=lambda: 0.0)

    def pass_seconds(seconds: float) -> None:
        clock.advance(int(seconds * SECOND))
        sweeper.run_once()

    yield Rig(
        EmbeddedBus(store, jitter=lambda: 0.0, actor="one"),
        EmbeddedBus(store, jitter=lambda: 0.0, actor="two"),
        pass_seconds,
    )
    store.close()


RIGS: dict[str, Callable[[pytest.FixtureRequest], Iterator[Rig]]] = {
    "embedded-sqlite": partial(embedded, "sqlite"),
    "embedded-postgres": partial(embedded, "postgres"),
    "embedded-postgres-plain": partial(embedded, "postgres-plain"),
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.postgres] if "postgres" in name else [])
        for name in RIGS
    ]
)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Every transport that is reachable."""
    for made in RIGS[str(request.param)](request):
        yield made
        made.bus.close()
        made.other.close()
