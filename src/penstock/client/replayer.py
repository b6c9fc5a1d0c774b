"""The replayer: replays dead letters of subscriptions that asked for it, while they are healthy.

Only letters that have been dead for a while, only while the consumer's health check answers well,
at a rate, and never beyond a subscription's cap: what keeps dying waits for a person after all. It
stands in this room because it does what callers do, under the name `auto`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.client import Client
from penstock.client.inbox import LetterFilter
from penstock.core.autoreplay import AutoReplay, parse_auto_replay
from penstock.core.egress import ANYWHERE
from penstock.core.strictjson import parse
from penstock.store.api import Store, Tx
from penstock.store.bound import customer_name, subscriptions_auto
from penstock.store.topics import HOUSE, Subscription

ACTOR = "auto"
LOOK = 1_000
STEP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """What a pass of the replayer did."""

    asked: int = 0
    healthy: int = 0
    replayed: int = 0


class Replayer:
    """Replays what died, subscription by subscription, behind a health check."""

    name = "replayer"

    def __init__(self, store: Store, is_healthy: Callable[[str], bool]) -> None:
        """`is_healthy` asks a URL; whatever goes wrong with that means no."""
        self._store = store
        self._client = Client(store, actor=ACTOR)
        self._is_healthy = is_healthy

    def run_once(self) -> Replays:
        """One bounded pass: a health check and a step for each subscription that has letters."""
        asked = healthy = replayed = 0
        for sub in self._store.read(lambda tx: subscriptions_auto(tx, LOOK)):
            wish = parse_auto_replay(parse((sub.auto_replay or "null").encode()), ANYWHERE)
            wanted = self._store.read(lambda tx, s=sub, w=wish: _wanted(tx, s, w))  # type: ignore[misc]
            if not self._client.dead_letters.count(wanted):
                continue
            asked += 1
            if not self._is_healthy(wish.health_url):
                continue
            healthy += 1
            step = self._client.dead_letters.replay_matching(wanted, limit=STEP, rate=wish.rate)
            replayed += len(step.replayed)
        return Replays(asked=asked, healthy=healthy, replayed=replayed)


def _wanted(tx: Tx, sub: Subscription, wish: AutoReplay) -> LetterFilter:
    customer = None if sub.customer == HOUSE else customer_name(tx, sub.customer)
    return LetterFilter(
        kind="delivery",
        subscription=sub.name,
        customer=customer,
        until=tx.now() - wish.after_us,
    )
