"""Use cases of service levels: results against targets, and breaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.clock import DAY, from_datetime
from penstock.core.records.parameters import CustomerFilter, PhaseFilter, PipelineFilter, Since
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.slos.from_rows import breach_record, slo_record
from penstock.slos.objectives import LATENCY
from penstock.slos.records import BreachKind, Measure, Slo, SloBreach
from penstock.slos.rows import BreachRow, SloRow, Sums, Windows
from penstock.slos.store import breach_list, live_breaches, slo_list, slo_points, slo_sums

__all__ = ["Slos"]

DAYS: Final = 28
_DAYS = Meta(description="Number of days to count, up to now.", ge=1, le=90)
_MEASURE = Meta(description="Return only this measure.")
_MODE = Meta(description="Return only this mode.")
_KIND = Meta(description="Return only breaches of flows, of phases or of runs.")


class Slos:
    """Use cases of service levels."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def list(
        self,
        *,
        pipeline: PipelineFilter = None,
        customer: CustomerFilter = None,
        mode: Annotated[Annotated[str, Meta(max_length=64)] | None, _MODE] = None,
        phase: PhaseFilter = None,
        measure: Annotated[Measure | None, _MEASURE] = None,
        days: Annotated[int, _DAYS] = DAYS,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Slo]:
        """List service levels by pipeline, mode and phase, with their error budgets.

        For a customer, only its own results are counted, against its own targets if it has any.
        """

        def read(after: Sequence[Any] | None) -> list[tuple[SloRow, Slo]]:
            def body(tx: Tx) -> list[tuple[SloRow, Slo]]:
                number = self._names.customer_key(tx, customer)
                info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
                wanted = {
                    "pipeline": None if info is None else info.pipeline_key,
                    "customer": number or 0, "mode": mode, "phase": phase, "measure": measure,
                }  # fmt: skip
                rows = slo_list(tx, wanted, after or ("", "", "", ""), limit)
                return list(zip(rows, self._records(tx, rows, number, days), strict=True))

            return self._store.read(body)

        return paged(
            self._names,
            "slos",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda one: one[0][:4],
            record=lambda one: one[1],
            filters={
                "pipeline": pipeline, "customer": customer, "mode": mode, "phase": phase,
                "measure": measure, "days": days,
            },
        )  # fmt: skip

    def breaches(
        self,
        *,
        pipeline: PipelineFilter = None,
        customer: CustomerFilter = None,
        kind: Annotated[BreachKind | None, _KIND] = None,
        since: Since = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[SloBreach]:
        """List breaches, newest first; by default those of the last 28 days.

        Flows and phases, open ones included, that missed their targets, and runs that missed their
        SLA; a run that has not started breaches when its threshold passes.
        """

        def read(after: Sequence[Any] | None) -> list[tuple[int, BreachRow]]:
            def body(tx: Tx) -> list[tuple[int, BreachRow]]:
                info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
                return breach_list(
                    tx,
                    customer=self._names.customer_key(tx, customer),
                    pipeline=None if info is None else info.pipeline_key,
                    kind=kind,
                    since=tx.now() - DAYS * DAY if since is None else from_datetime(since),
                    after=after,
                    n=limit,
                )

            return self._store.read(body)

        return paged(
            self._names,
            "slo breaches",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda one: (one[1].at, one[0], one[1].row_id),
            record=lambda one: breach_record(one[1]),
            filters={"pipeline": pipeline, "customer": customer, "kind": kind, "since": since},
        )

    def _records(self, tx: Tx, rows: Sequence[SloRow], customer: Any, days: int) -> Sequence[Slo]:
        if not rows:
            return []
        now = tx.now()
        since = now - days * DAY
        keys = sorted({row.pipeline_key for row in rows})
        sums = slo_sums(tx, keys, customer or 0, since, now)
        waiting = live_breaches(tx, keys, customer)
        found = []
        for row in rows:
            windows = sums.get((row.pipeline_key, row.mode, row.phase, row.measure), Windows())
            if row.measure == "sla":
                windows = _with_waiting(windows, waiting.get(row.pipeline_key, 0))
            points = slo_points(tx, row, customer, since) if row.measure == LATENCY else []
            found.append(slo_record(row, windows, points))
        return found


def _with_waiting(windows: Windows, waiting: int) -> Windows:
    """Add runs that have not started although their SLA has passed."""
    return Windows(*(Sums(one.good, one.bad + waiting) for one in windows))
