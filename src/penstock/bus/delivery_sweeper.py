"""The delivery sweeper: handles deliveries whose delay, lease or retention has expired.

It makes delayed deliveries ready, releases lapsed ones and ends those past retention. Pulling a
subscription does the first two for that subscription; the sweeper covers all of them, including
subscriptions that no consumer pulls from. Every change is compare-and-set, so any number of
sweepers may run at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.bus.store.deliveries import SWEEP_MAX, LapsedKey, delivery_due, delivery_lapse
from penstock.bus.store.replay import (
    CHUNK,
    delivery_expire,
    delivery_purge_deleted,
    subscriptions_past_retention,
)
from penstock.bus.store.topics import channels, subscription_get_by_key
from penstock.core.errors import StoreError
from penstock.core.naming import SubscriptionKey
from penstock.db.isolation import IsolatedBatches
from penstock.db.store import Transactions, Tx

STEPS_MAX = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySweepCounts:
    """Counts of one sweep."""

    due: int = 0
    lapsed: int = 0
    dead: int = 0
    expired: int = 0
    purged: int = 0


class DeliverySweeper:
    """Service that updates due, lapsed and expired deliveries."""

    name = "delivery-sweeper"

    def __init__(
        self, store: Transactions, *, jitter: Callable[[], float], batch: int = SWEEP_MAX
    ) -> None:
        self._store = store
        self._jitter = jitter
        self._batch = batch
        self._lapses = IsolatedBatches[LapsedKey](store, batch, _stuck)

    def run_once(self) -> DeliverySweepCounts:
        """Make one bounded pass; every chunk has its own transaction."""
        lapsed, dead = self._lapse()
        return DeliverySweepCounts(
            due=self._due(),
            lapsed=lapsed,
            dead=dead,
            expired=self._expire(),
            purged=self._repeat(delivery_purge_deleted, CHUNK),
        )

    def _due(self) -> int:
        total = 0
        for _ in range(STEPS_MAX):
            count, wake = self._store.write(self._due_step)
            total += count
            if wake:
                self._store.wake(sorted(wake))
            if count < self._batch:
                break
        return total

    def _due_step(self, tx: Tx) -> tuple[int, set[str]]:
        ready = delivery_due(tx, self._batch)
        found = [
            subscription_get_by_key(tx, SubscriptionKey(number)) for number in sorted(set(ready))
        ]
        return len(ready), channels(sub.subscriber for sub in found if sub is not None)

    def _lapse(self) -> tuple[int, int]:
        total, dead = 0, 0
        for _ in range(STEPS_MAX):
            rows = self._lapses.rows
            step = self._lapses.write(self._lapse_step)
            if step is None:
                continue
            count, died, wake = step
            total, dead = total + count, dead + died
            if wake:
                self._store.wake(sorted(wake))
            if count < rows:
                break
        return total, dead

    def _lapse_step(self, tx: Tx) -> tuple[int, int, set[str]]:
        return delivery_lapse(
            tx,
            self._jitter,
            n=self._lapses.rows,
            aside=self._lapses.aside(tx),
            trying=self._lapses.trying,
        )

    def _expire(self) -> int:
        total = 0
        for number in self._store.read(subscriptions_past_retention):
            try:
                total += self._repeat(partial(self._expire_step, number), CHUNK)
            except StoreError:
                raise
            except Exception:  # only this subscription fails; continue with the others
                log.exception("expiring messages of subscription %s failed", number)
        return total

    def _expire_step(self, number: int, tx: Tx) -> int:
        sub = subscription_get_by_key(tx, SubscriptionKey(number))
        return 0 if sub is None else delivery_expire(tx, sub)

    def _repeat(self, step: Callable[[Tx], int], full: int) -> int:
        total = 0
        for _ in range(STEPS_MAX):
            count = self._store.write(step)
            total += count
            if count < full:
                break
        return total


def _stuck(tx: Tx, delivery: LapsedKey, error: Exception) -> None:
    """Open an alert about a delivery that can be neither retried nor dead-lettered."""
    subscription, message_id = delivery
    alert_open(
        tx,
        NewAlert(
            rule="delivery_stuck",
            dedupe_key=f"delivery_stuck:{subscription}:{message_id}",
            severity="HIGH",
            subject_kind="subscription",
            subject=subscription,
            message=f"Message {message_id} lapsed and cannot be delivered again: "
            f"{type(error).__name__}: {error}"[:1_000],
            detail={"fix": f"penstock topics message {message_id}"},
        ),
    )
