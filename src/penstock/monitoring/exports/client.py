"""Use case of exports: one page of ended runs, flows, journal entries or executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.clock import from_datetime
from penstock.core.records.parameters import CustomerFilter
from penstock.core.records.record import Meta, Time
from penstock.db.store import Row, Transactions
from penstock.monitoring.exports.columns import ExportKind, names_of, shown_row
from penstock.monitoring.exports.records import ExportPage
from penstock.monitoring.exports.store import export_rows

__all__ = ["Exports"]

NO_END: Final = 2**62
_KIND = Meta(description="What to export: runs, flows, journal or executions.")
_SINCE = Meta(
    description="Earliest end of runs and executions, opening of flows, or time of entries."
)
_UNTIL = Meta(description="Time before which rows are exported; no bound when omitted.")


class Exports:
    """Use cases of exports."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def page(
        self,
        kind: Annotated[ExportKind, _KIND],
        *,
        since: Annotated[Time | None, _SINCE] = None,
        until: Annotated[Time | None, _UNTIL] = None,
        customer: CustomerFilter = None,
        limit: PageLimit = 1000,
        cursor: Cursor = None,
    ) -> ExportPage:
        """Return a page of rows with plain values, for files and other databases.

        Runs are those that ended. Rows come in the order of their ids; follow `next_cursor`.
        """
        span = (
            0 if since is None else from_datetime(since),
            NO_END if until is None else from_datetime(until),
        )

        def read(after: Sequence[Any] | None) -> list[Row]:
            return self._store.read(
                lambda tx: export_rows(
                    tx,
                    kind,
                    span,
                    self._names.customer_key(tx, customer),
                    after=after[0] if after else None,
                    limit=limit,
                )
            )

        found = paged(
            self._names,
            f"export:{kind}",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda row: [row[-1]],
            record=lambda row: shown_row(kind, row[:-1]),
            filters={"since": since, "until": until, "customer": customer},
        )
        return ExportPage(
            columns=names_of(kind), rows=list(found.items), next_cursor=found.next_cursor
        )
