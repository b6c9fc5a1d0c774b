"""The replayer: automatically replays dead letters of subscriptions that enable `auto_replay`.

It replays dead letters only after a minimum age, only while the consumer's health check succeeds,
at a limited rate, and up to the subscription's maximum; messages that keep failing then wait for an
operator. Its replays are those of the use cases (`dead_letters.client.replays`), as actor `auto`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.access.store.names import NameResolver
from penstock.bus.replay_policy import ReplayPolicy, parse_auto_replay
from penstock.bus.store.bindings import subscriptions_auto_replay
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.json_profile import parse_json
from penstock.db.store import StoreView
from penstock.dead_letters.client.replays import DeadLetterReplays
from penstock.dead_letters.store import FAR, DeadLetterRowFilter, dead_letter_count
from penstock.egress.policy import PERMISSIVE

ACTOR = "auto"
PAGE = 1_000
STEP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Where the next step of a subscription continues, and when its rate allows that step."""

    before: int = FAR
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayerCounts:
    """Counts of one `run_once` of the replayer.

    asked: subscriptions whose health was checked. healthy: those that passed. replayed: dead
    letters.
    """

    checked: int = 0
    healthy: int = 0
    replayed: int = 0


class Replayer:
    """Service that replays dead letters of healthy subscriptions."""

    name = "replayer"

    def __init__(self, store: StoreView, is_healthy: Callable[[str], bool]) -> None:
        """Create the service; `is_healthy` checks a health URL and returns False on any error."""
        self._store = store
        self._replays = DeadLetterReplays(store, NameResolver(store), ACTOR)
        self._is_healthy = is_healthy
        self._after = 0
        self._positions: dict[int, _Position] = {}

    def run_once(self) -> ReplayerCounts:
        """Check the health of each subscription with dead letters and replay one step of it."""
        asked = healthy = replayed = 0
        start = self._after
        now, subs = self._store.read(
            lambda tx: (tx.now(), subscriptions_auto_replay(tx, PAGE, start))
        )
        self._after = subs[-1].subscription_key if len(subs) == PAGE else 0
        for sub in subs:
            policy = parse_auto_replay(parse_json((sub.auto_replay or "null").encode()), PERMISSIVE)
            position = self._positions.get(sub.subscription_key, _Position())
            wanted = _wanted(sub, policy, now)
            if now < position.at or not self._count(wanted):
                continue
            asked += 1
            if not self._is_healthy(policy.health_url):
                continue
            healthy += 1
            replayed += self._step(sub, policy, wanted, position.before)
        self._positions = {
            number: one
            for number, one in self._positions.items()
            if one.before != FAR or one.at > now
        }
        return ReplayerCounts(checked=asked, healthy=healthy, replayed=replayed)

    def _step(
        self, sub: SubscriptionRow, policy: ReplayPolicy, wanted: DeadLetterRowFilter, before: int
    ) -> int:
        """Replay the next dead letters of a subscription; return their number.

        Dead letters that may no longer be replayed stay open, so the next step continues after
        this one; after the last step, the next starts from the newest again.
        """
        step = self._store.write(
            lambda tx: self._replays.step(
                tx, wanted, limit=STEP, rate=policy.rate_per_s, before=before
            )
        )
        self._positions[sub.subscription_key] = _Position(
            before=FAR if step.next_before is None else step.next_before,
            at=(step.next_at or 0) if step.replayed else 0,
        )
        return len(step.replayed)

    def _count(self, wanted: DeadLetterRowFilter) -> int:
        return self._store.read(lambda tx: dead_letter_count(tx, wanted))


def _wanted(sub: SubscriptionRow, policy: ReplayPolicy, now: int) -> DeadLetterRowFilter:
    """Return the filter for this subscription, by key: other customers may use the same name."""
    return DeadLetterRowFilter(
        kind="delivery", subscription_number=sub.subscription_key, until=now - policy.min_age_us
    )
