"""The warehouse adapter of BigQuery: probes as bounded queries."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from penstock.probes.bigquery.address import BigQueryAddress
from penstock.probes.bigquery.bounded_query import (
    BoundedQueries,
    QueryBounds,
    QueryRefused,
    QueryTimeout,
    lowest,
)
from penstock.probes.bigquery.connection import failure_text, google_errors, open_client
from penstock.probes.names import table_quoted
from penstock.probes.protocol import (
    Dialect,
    ProbeBudget,
    ProbeFailed,
    ProbeStatement,
    QueryResults,
)
from penstock.probes.timeout import timeout_error


class BigQueryWarehouse:
    """The tables of one project, or of one dataset if the address names one.

    The statements of a probe are separate jobs: BigQuery has no snapshot across them.
    """

    dialect = Dialect(
        mark=lambda name: f"@p_{name}",  # a prefix, because PARTITION is a reserved word
        text_type="STRING",
        quote="`",
        name_max=1_024,
        days_by_scan=True,
    )

    def __init__(self, address: BigQueryAddress, library: Any) -> None:
        self._address = address
        self._library = library
        self._lock = threading.Lock()
        self._client: Any = None

    def from_clause(self, table: str, tag: str) -> ProbeStatement:  # noqa: ARG002  # the protocol's
        """Return the quoted name of the table; no values are bound."""
        quoted = table_quoted(table, self.dialect)
        if "." not in table and self._address.dataset is None:
            raise ProbeFailed(
                f"{table} has no dataset; name it dataset.{table}, "
                f"or use the address bigquery:{self._address.project}.DATASET"
            )
        return ProbeStatement(text=quoted)

    def read(self, statements: Sequence[ProbeStatement], budget: ProbeBudget) -> QueryResults:
        """Read the statements one after the other, each within the budget of bytes."""
        found = []
        try:
            queries = BoundedQueries(self._address, self._opened(), self._library)
            left = queries.deadline(budget.dependency_timeout_s)
            for statement in statements:
                bounds = QueryBounds(
                    bytes_max=self._address.bytes_max,
                    rows_max=statement.rows_max,
                    seconds=left(),
                )
                values = {f"p_{name}": value for name, value in statement.values}
                found.append(
                    queries.select(statement.text, values, lowest(bounds, budget.bytes_max))
                )
        except QueryTimeout:
            raise timeout_error(budget.dependency_timeout_s) from None
        except QueryRefused as error:
            raise ProbeFailed(str(error)) from None
        except google_errors() as error:
            raise ProbeFailed(failure_text(error)) from None
        return QueryResults(
            results=[one.rows for one in found],
            scanned_bytes=sum(one.scanned_bytes for one in found),
            columns=[one.columns for one in found],
        )

    def close(self) -> None:
        """Close the client's connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = open_client(self._address, self._library)
            return self._client
