"""The replayer: replays dead letters of subscriptions that asked for it, while they are healthy.

Only letters that have been dead for a while, only while the consumer's health check answers well,
at a rate, and never beyond a subscription's cap: what keeps dying waits for a person after all. It
stands in this room because it does what callers do, under the name `auto`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.bus.replay_policy import AutoReplay, parse_auto_replay
from penstock.bus.store.bindings import subscriptions_auto
from penstock.bus.store.topics import Subscription
from penstock.client import Client
from penstock.core.json_profile import parse
from penstock.db.store import Store
from penstock.dead_letters.client.dead_letters import FAR, LetterFilter
from penstock.egress.policy import ANYWHERE

ACTOR = "auto"
LOOK = 1_000
STEP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """How far a subscription's letters were gone through, and when its rate allows more."""

    before: int = FAR
    at: int = 0


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
        self._after = 0
        self._places: dict[int, _Place] = {}

    def run_once(self) -> Replays:
        """One bounded pass: a health check and a step for each subscription that has letters."""
        asked = healthy = replayed = 0
        start = self._after
        now, subs = self._store.read(lambda tx: (tx.now(), subscriptions_auto(tx, LOOK, start)))
        self._after = subs[-1].subscription if len(subs) == LOOK else 0
        for sub in subs:
            wish = parse_auto_replay(parse((sub.auto_replay or "null").encode()), ANYWHERE)
            place = self._places.get(sub.subscription, _Place())
            wanted = _wanted(sub, wish, now)
            if now < place.at or not self._client.dead_letters.count(wanted):
                continue
            asked += 1
            if not self._is_healthy(wish.health_url):
                continue
            healthy += 1
            replayed += self._step(sub, wish, wanted, place.before)
        self._places = {
            number: one for number, one in self._places.items() if one.before != FAR or one.at > now
        }
        return Replays(asked=asked, healthy=healthy, replayed=replayed)

    def _step(self, sub: Subscription, wish: AutoReplay, wanted: LetterFilter, before: int) -> int:
        """Replay the next letters of a subscription. Those that may not be replayed any more stay
        open, so the next step goes on after these, and begins anew after the last.
        """
        step = self._client.dead_letters.replay_matching(
            wanted, limit=STEP, rate=wish.rate, before=before
        )
        self._places[sub.subscription] = _Place(
            before=FAR if step.next_before is None else step.next_before,
            at=(step.next_at or 0) if step.replayed else 0,
        )
        return len(step.replayed)


def _wanted(sub: Subscription, wish: AutoReplay, now: int) -> LetterFilter:
    """Those of this subscription alone: others may have one of the same name."""
    return LetterFilter(
        kind="delivery", subscription_number=sub.subscription, until=now - wish.after_us
    )
