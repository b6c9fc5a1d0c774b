"""Use cases of anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.records.parameters import CustomerFilter, PipelineFilter
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.usage.from_rows import anomaly_record
from penstock.usage.records import Anomaly, AnomalyMeasure
from penstock.usage.rows import AnomalyRow
from penstock.usage.store import anomaly_list

__all__ = ["Anomalies"]

_MEASURE = Meta(description="Return only anomalies of this measure.")
_OPEN = Meta(description="Return only processors whose newest execution is out of range.")


class Anomalies:
    """Use cases of anomalies."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def list(
        self,
        *,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        measure: Annotated[AnomalyMeasure | None, _MEASURE] = None,
        only_open: Annotated[bool, _OPEN] = False,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Anomaly]:
        """List executions outside the range of earlier ones, newest first.

        Duration, records and arrival (time from scheduled time to end) of completed runs are
        compared with the last 60 of the same processor, customer and mode, if there are at least
        ten.
        """

        def read(after: Sequence[Any] | None) -> list[AnomalyRow]:
            def body(tx: Tx) -> list[AnomalyRow]:
                info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
                return anomaly_list(
                    tx,
                    customer=self._names.customer_key(tx, customer),
                    pipeline=None if info is None else info.pipeline_key,
                    measure=measure,
                    only_open=only_open,
                    after=after,
                    n=limit,
                )

            return self._store.read(body)

        return paged(
            self._names,
            "anomalies",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda row: (row.at, row.anomaly_id),
            record=anomaly_record,
            filters={
                "customer": customer, "pipeline": pipeline, "measure": measure,
                "only_open": only_open or None,
            },
        )  # fmt: skip
