"""The replayer: automatically replays dead letters of subscriptions that enable `auto_replay`.

It replays dead letters only after a minimum age, only while the consumer's health check succeeds,
at a limited rate, and up to the subscription's maximum; messages that keep failing then wait for an
operator. It uses the replays of the use cases (`dead_letters.client.replays`), as actor `auto`.

Health checks run in the background (`services.health_checks`): a pass starts those that it needs
and replays where one has succeeded, so consumers and subscriptions do not delay each other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from penstock.access.store.names import NameResolver
from penstock.bus.replay_policy import ReplayPolicy, parse_auto_replay
from penstock.bus.store.bindings import subscriptions_auto_replay
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.clock import SECOND
from penstock.core.errors import StoreError
from penstock.core.json_profile import parse_json
from penstock.db.isolation import interleaved
from penstock.db.store import StoreView
from penstock.dead_letters.client.replays import DeadLetterReplays
from penstock.dead_letters.store import FAR, DeadLetterRowFilter, dead_letter_count
from penstock.egress.policy import PERMISSIVE
from penstock.services.health_checks import HealthCheck, HealthChecks

ACTOR = "auto"
PAGE = 1_000
STEP = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Position of the next step of a subscription, and the time at which its rate allows it."""

    before: int = FAR
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayerCounts:
    """Counts of one `run_once` of the replayer.

    checked: subscriptions with a result of their health check. healthy: those that passed.
    replayed: dead letters. failed: subscriptions that raised an error.
    """

    checked: int = 0
    healthy: int = 0
    replayed: int = 0
    failed: int = 0
    next_at: int | None = None
    """Time of the next check for results; None if no health check is in progress."""
    now: int = 0


class Replayer:
    """Service that replays dead letters of healthy subscriptions."""

    name = "replayer"

    def __init__(self, store: StoreView, is_healthy: HealthCheck, *, threads: int = 0) -> None:
        """Create the service; `threads` bounds the checks in progress, 0 checks inline."""
        self._store = store
        self._replays = DeadLetterReplays(store, NameResolver(store), ACTOR)
        self._checks = HealthChecks(is_healthy, threads)
        self._after = 0
        self._positions: dict[int, _Position] = {}

    def run_once(self) -> ReplayerCounts:
        """Check the health of each subscription with dead letters and replay one step of it."""
        start = self._after
        now, subs = self._store.read(
            lambda tx: (tx.now(), subscriptions_auto_replay(tx, PAGE, start))
        )
        is_full = len(subs) == PAGE
        self._after = subs[-1].subscription_key if is_full else 0
        total, waits = ReplayerCounts(now=now), is_full
        for sub in interleaved(subs, lambda sub: sub.customer_key):
            try:
                part = self._serve(sub, now)
            except StoreError:
                raise
            except Exception:  # only this subscription fails; continue with the others
                log.exception("automatic replay of subscription %s failed", sub.name)
                part = ReplayerCounts(failed=1)
            waits |= part is None
            if part is not None:
                total = replace(
                    total,
                    checked=total.checked + part.checked,
                    healthy=total.healthy + part.healthy,
                    replayed=total.replayed + part.replayed,
                    failed=total.failed + part.failed,
                )
        self._positions = {
            number: one
            for number, one in self._positions.items()
            if one.before != FAR or one.at > now
        }
        return replace(total, next_at=now + SECOND) if waits else total

    def _serve(self, sub: SubscriptionRow, now: int) -> ReplayerCounts | None:
        """Replay the next dead letters of a healthy subscription; None while its check runs."""
        policy = parse_auto_replay(parse_json((sub.auto_replay or "null").encode()), PERMISSIVE)
        position = self._positions.get(sub.subscription_key, _Position())
        wanted = _wanted(sub, policy, now)
        if now < position.at or not self._count(wanted):
            return ReplayerCounts()
        owner = str(sub.customer_key)
        is_healthy = self._checks.result(sub.subscription_key, owner, policy.health_url)
        if is_healthy is None:
            return None
        if not is_healthy:
            return ReplayerCounts(checked=1)
        replayed = self._step(sub, policy, wanted, position.before)
        return ReplayerCounts(checked=1, healthy=1, replayed=replayed)

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
