"""Whether a scheduler is alive to start what is due, read at most once in a transaction."""

from __future__ import annotations

from penstock.access.store.names import NameResolver
from penstock.core.clock import Micros
from penstock.db.store import Tx
from penstock.flows.explain.facts import CLAIM_GRACE_US
from penstock.schedules.liveness import is_scheduler_alive
from penstock.schedules.store.ticks import ticks_read


class SchedulerLoader:
    """Loader of the state of the schedulers within one transaction."""

    def __init__(self, tx: Tx, names: NameResolver) -> None:
        self._tx = tx
        self._is_bound = names.customer_id is not None
        self._is_alive: bool | None = None

    def is_missing_for(self, due_at: Micros | None) -> bool:
        """Return whether something has been due for a while and no scheduler is alive to start it.

        A caller bound to a customer does not see the processes of the installation.
        """
        now = self._tx.now()
        if self._is_bound or due_at is None or now - due_at <= CLAIM_GRACE_US:
            return False
        if self._is_alive is None:
            ticked = [row.ticked_at for row in ticks_read(self._tx)]
            self._is_alive = is_scheduler_alive(ticked, now)
        return not self._is_alive
