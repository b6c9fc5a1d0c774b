"""Effects of the ends of runs, in the transaction that stores them.

Flows advance, backfills start their next partitions, and the worker claims the resulting runs, so
that a phase needs one commit, not three. Each part waits for no other transaction and may be
skipped; the orchestrator, the backfiller and the claimer do the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.access.store.names import NameResolver
from penstock.core.naming import runs_channel
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.store import follow
from penstock.recovery.backfiller import Backfiller
from penstock.runs.rows import CompletionEvent, HeldRun
from penstock.runs.store.runs import Claim, run_claim
from penstock.worker.options import WorkerOptions


class FollowUp:
    """Last step of the transactions in which one worker stores ends."""

    def __init__(self, store: Transactions, options: WorkerOptions, names: NameResolver) -> None:
        self._options = options
        self._backfiller = Backfiller(store, names)

    def __call__(
        self, tx: Tx, events: Sequence[CompletionEvent], claim: Claim | None
    ) -> list[HeldRun]:
        """Advance the flows of completions; return the runs claimed, if that made any ready."""
        done = follow(tx, events, self._options.name)
        pools = set(done.pools)
        if done.ended_backfills:
            pools |= self._backfiller.follow_flows(tx, done.ended_backfills)
        own, runs = self._options.pool, list[HeldRun]()
        if claim is not None and own in pools:
            runs = run_claim(tx, claim)
            if len(runs) < claim.n:
                pools.discard(own)  # no work is left for other services
        if pools:
            tx.wake(sorted(map(runs_channel, pools)))
        return runs
