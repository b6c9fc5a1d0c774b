"""Use case: the work of the current day, and its progress."""

from __future__ import annotations

from typing import Annotated

from penstock.core.clock import DAY, Micros
from penstock.core.records.parameters import CustomerFilter
from penstock.core.records.record import Meta, time, time_or_none
from penstock.db.store import Tx
from penstock.flows.cascade import FlowState
from penstock.flows.client.listing import FlowOrder, flow_page, flow_records
from penstock.flows.records import Flow
from penstock.flows.rows import FlowFilter
from penstock.flows.store.flows import flow_list_ended
from penstock.monitoring.client.customers import CustomerViews
from penstock.monitoring.today.cohorts import CohortCounts, done_percentage, eta_of
from penstock.monitoring.today.records import Cohort, Today
from penstock.monitoring.today.store import cohorts_read

ORDER = FlowOrder("open", "newest", risk=True, phases=True)
WELL = (FlowState.COMPLETE, FlowState.DEGRADED)
_LIMIT = Meta(description="Maximum number of flows, and of cohorts.", ge=1, le=100)


class TodayViews(CustomerViews):
    """Read-only use cases over the current day."""

    def today(
        self, *, customer: CustomerFilter = None, limit: Annotated[int, _LIMIT] = 20
    ) -> Today:
        """Return the flows and the scheduled runs of today (UTC), with their progress.

        Runs that one occurrence of a schedule started for many customers are one cohort with
        counts. Everything is read from live tables, sums and the ledger.
        """

        def body(tx: Tx) -> Today:
            number = self._names.customer_key(tx, customer)
            now = tx.now()
            since = now // DAY * DAY
            flows = self._flows(tx, number, since, limit + 1)
            found = cohorts_read(tx, number, since)
            shown = flows[:limit]
            kept = [one for one in shown if one.state != FlowState.CANCELLED]
            done = sum(1 for one in kept if one.state in WELL)
            return Today(
                as_of=time(now),
                since=time(since),
                due_done_percentage=done_percentage(found.cohorts, done, len(kept)),
                flows=shown,
                has_more_flows=len(flows) > limit,
                cohorts=[_record(one, now) for one in found.cohorts[:limit]],
                has_more_cohorts=len(found.cohorts) > limit,
                is_partial=found.is_partial,
            )

        return self._store.read(body)

    def _flows(self, tx: Tx, customer: int | None, since: Micros, limit: int) -> list[Flow]:
        """Return open flows, then those that ended since a time."""
        wanted = FlowFilter(customer=customer, state=FlowState.OPEN, limit=limit)
        found = list(flow_page(tx, self._names, wanted, ORDER)[0])
        if len(found) < limit:
            rows = flow_list_ended(tx, customer, since, limit - len(found))
            found += flow_records(tx, self._names, rows, ORDER._replace(risk=False))
        return found


def _record(one: CohortCounts, now: Micros) -> Cohort:
    is_over = not one.open and one.expected > 0
    return Cohort(
        pipeline=one.key.pipeline,
        occurrence_at=time(one.key.occurrence_at),
        expected=one.expected,
        completed=one.completed,
        running=one.running,
        queued=one.queued,
        retrying=one.retrying,
        dead=one.dead,
        cancelled=one.cancelled,
        skipped=one.skipped,
        ended_at=time_or_none(one.ended_at if is_over else None),
        eta_at=time_or_none(eta_of(one, now)),
    )
