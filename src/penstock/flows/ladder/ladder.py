"""The services that start what the cascade missed: the scheduler's fallback and self-heal.

Each selects flows, evaluates their gates like the orchestrator (`flows.advance.store.advance`,
the only path that starts phases), and runs the probes that they need between two transactions. It
does not depend on an orchestrator. Safe in any number of replicas: a trigger exists once, a
fallback is taken under its flow's lock, and one process at a time makes a pass of self-heal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.errors import StoreError
from penstock.core.naming import runs_channel
from penstock.db.isolation import IsolatedBatches
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.announcements import FALLBACK_SOURCE, SELF_HEAL_SOURCE
from penstock.flows.advance.probes import ordered_probe_request
from penstock.flows.advance.snapshot import Evidence, ProbeOrder, Wakeup
from penstock.flows.advance.store import AdvanceResult, advance
from penstock.flows.gates.probe_request import Prober, no_probes
from penstock.flows.ladder.rungs import HEAL_EVERY, gates_to_heal
from penstock.flows.ladder.store import (
    fallbacks_take,
    heal_candidates,
    pass_take,
    snapshots_read,
)
from penstock.flows.orchestrator import record_unadvanced
from penstock.pipelines.declare.pipeline import Pipeline

log = logging.getLogger(__name__)

BATCH: Final = 200
PAGE: Final = 500
PASS_FLOWS_MAX: Final = 50_000
"""Maximum number of candidates that one pass of self-heal examines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungCounts:
    """Counts of one step: flows evaluated, phases or processors started, flows ended."""

    flows: int = 0
    triggers: int = 0
    ended: int = 0

    def plus(self, part: AdvanceResult, flows: int) -> RungCounts:
        """Add the counts of one transaction."""
        return replace(
            self,
            flows=self.flows + flows,
            triggers=self.triggers + part.triggers,
            ended=self.ended + part.ended,
        )


class _Rung:
    """Evaluates selected flows, with their probes."""

    name = ""

    def __init__(
        self,
        store: Transactions,
        probe: Prober = no_probes,
        *,
        holder: str = "ladder",
        pipelines: Sequence[Pipeline] = (),
        batch: int = BATCH,
    ) -> None:
        """pipelines: code loaded here, for expected counts that are functions."""
        self._store = store
        self._probe = probe
        self._holder = f"{holder}/{self.name}"
        self._code = {pipeline.digest: pipeline for pipeline in pipelines}
        self._batches = IsolatedBatches[int](store, batch, record_unadvanced)

    def _evaluate(
        self, choose: Callable[[Tx], Mapping[int, Wakeup]], total: RungCounts
    ) -> tuple[RungCounts, int | None]:
        """Evaluate the selected flows; return the counts, and the number of flows.

        None if a flow could not be evaluated; the next selection is smaller or skips it.
        """
        chosen: Mapping[int, Wakeup] = {}

        def body(tx: Tx) -> AdvanceResult:
            nonlocal chosen
            chosen = choose(tx)
            if not chosen:
                return AdvanceResult()
            self._batches.trying(chosen)
            return advance(tx, chosen, actor=self.name, holder=self._holder)

        part = self._batches.write(body)
        if part is None:
            return total, None
        total = self._counted(total, part, len(chosen))
        observed: dict[int, Wakeup] = {}
        for order in part.probes:
            before = chosen[order.flow.flow_id]
            wakeup = observed.setdefault(
                order.flow.flow_id, Wakeup(source=before.source, fallback=before.fallback)
            )
            wakeup.evidence[order.gate_id] = self._probed(order)
        if observed:
            after = self._batches.write(
                lambda tx: advance(tx, observed, actor=self.name, holder=self._holder)
            )
            total = total if after is None else self._counted(total, after, 0)
        return total, len(chosen)

    def _probed(self, order: ProbeOrder) -> Evidence:
        request = ordered_probe_request(order, self._code)
        found = {one.key: one for one in self._probe(request)}
        return Evidence(token=order.token, observations=found, is_output=order.is_output)

    def _counted(self, total: RungCounts, part: AdvanceResult, flows: int) -> RungCounts:
        if part.pools:
            self._store.wake(sorted({runs_channel(pool) for pool in part.pools}))
        return total.plus(part, flows)


class SchedulerFallback(_Rung):
    """Service that starts phases at their fallback time if the cascade has not started them."""

    name = "fallback"

    def run_once(self) -> RungCounts:
        """Evaluate every phase whose fallback time has come; their gates no longer wait."""
        total, count = RungCounts(), None
        while count != 0:
            total, count = self._evaluate(self._due, total)
        return total

    def _due(self, tx: Tx) -> dict[int, Wakeup]:
        found = fallbacks_take(tx, self._batches.rows, self._batches.aside(tx))
        return {
            flow_id: Wakeup(source=FALLBACK_SOURCE, fallback=phases)
            for flow_id, phases in found.items()
        }


class SelfHeal(_Rung):
    """Service that evaluates phases that the cascade should have started or ended long ago."""

    name = "self-heal"

    def run_once(self) -> RungCounts:
        """Make a pass over open flows if one is due; see `HEAL_EVERY`."""
        total = RungCounts()
        if not self._store.write(lambda tx: pass_take(tx, "self_heal_at", HEAL_EVERY)):
            return total
        after, seen = (-1, 0), 0
        while seen < PASS_FLOWS_MAX:
            page, overdue = self._store.read(lambda tx, a=after: self._page(tx, a))  # type: ignore[misc]
            if not page:
                break
            while overdue:
                now = overdue[: self._batches.rows]
                total, count = self._evaluate(lambda tx, ids=now: self._overdue(tx, ids), total)  # type: ignore[misc]
                overdue = overdue if count is None else overdue[len(now) :]
            after, seen = page[-1], seen + len(page)
        return total

    def _page(self, tx: Tx, after: tuple[int, int]) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the next candidates, and those of them that are overdue."""
        page = heal_candidates(tx, after, PAGE)
        ids = [flow_id for _, flow_id in page]
        try:
            found = snapshots_read(tx, ids) if ids else []
        except StoreError:
            raise
        except Exception:
            # One of them cannot be read; it is identified when each is evaluated separately.
            log.exception("a page of %d flows cannot be read", len(ids))
            return page, ids
        return page, [one.flow.flow_id for one in found if gates_to_heal(one)]

    def _overdue(self, tx: Tx, ids: Sequence[int]) -> dict[int, Wakeup]:
        """Return what to evaluate in these flows, which are locked and read again."""
        aside = self._batches.aside(tx)
        wanted = [flow_id for flow_id in ids if flow_id not in aside]
        self._batches.trying(wanted)
        locked = snapshots_read(tx, wanted, lock=True) if wanted else []
        found = {one.flow.flow_id: gates_to_heal(one) for one in locked}
        return {
            flow_id: Wakeup(source=SELF_HEAL_SOURCE, due=gates)
            for flow_id, gates in found.items()
            if gates
        }
