"""One SELECT in BigQuery, bounded in bytes, rows and time.

A dry run comes first: it is free, checks the statement and its names, reports whether it only
reads, and estimates the bytes. A statement over its budget is never started; `maximum_bytes_billed`
then bounds it on the server, and a job that takes too long is cancelled there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.core.clock import Clock, SystemClock
from penstock.probes.bigquery.address import BigQueryAddress

LABELS: Final = {"service": "penstock"}
CANCEL_SECONDS: Final = 5.0
SELECT: Final = "SELECT"


class QueryRefused(Exception):
    """The query was not started: it does more than read, or would exceed its budget."""


class QueryTimeout(Exception):
    """The query did not end in time and was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBounds:
    """Bounds of a statement. tables: `project.dataset.table` names it may read; None for any."""

    bytes_max: int
    rows_max: int | None
    seconds: float
    tables: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedRows:
    """The rows of a statement, and the bytes that were scanned for them."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    scanned_bytes: int


class BoundedQueries:
    """Queries of one client; thread-safe."""

    def __init__(
        self, address: BigQueryAddress, client: Any, library: Any, *, clock: Clock | None = None
    ) -> None:
        self._address = address
        self._client = client
        self._library = library
        self._clock = clock or SystemClock()

    def deadline(self, seconds: float) -> Callable[[], float]:
        """Return a function that returns the seconds left, or raises QueryTimeout if none are."""
        end = self._clock.monotonic() + seconds

        def left() -> float:
            rest = end - self._clock.monotonic()
            if rest <= 0:
                raise QueryTimeout(f"no response within {seconds:g} s")
            return rest

        return left

    def select(self, text: str, values: Mapping[str, Any], bounds: QueryBounds) -> SelectedRows:
        """Execute one SELECT. Raise QueryRefused, QueryTimeout or an error of the library."""
        left = self.deadline(bounds.seconds)
        parameters = [self._parameter(name, value) for name, value in values.items()]
        self._check(text, parameters, bounds, left)
        job = self._start(
            text,
            self._config(
                parameters,
                maximum_bytes_billed=bounds.bytes_max,
                job_timeout_ms=max(1, round(left() * 1_000)),
            ),
            left,
        )
        try:
            found = job.result(
                max_results=bounds.rows_max,
                timeout=left(),
                retry=self._retry(left),
                job_retry=None,
            )
            rows = [tuple(row.values()) for row in found]
        except (TimeoutError, QueryTimeout):
            with contextlib.suppress(Exception):
                job.cancel(timeout=CANCEL_SECONDS, retry=None)
            raise QueryTimeout(f"no response within {bounds.seconds:g} s") from None
        return SelectedRows(
            columns=tuple(field.name for field in found.schema),
            rows=rows,
            scanned_bytes=int(job.total_bytes_processed or 0),
        )

    def _check(
        self,
        text: str,
        parameters: Sequence[Any],
        bounds: QueryBounds,
        left: Callable[[], float],
    ) -> None:
        """Estimate the statement, and refuse it if it may not run."""
        config = self._config(parameters, dry_run=True, use_query_cache=False)
        dry = self._start(text, config, left)
        if dry.statement_type != SELECT:
            got = dry.statement_type or "an unknown statement"
            raise QueryRefused(f"expected one SELECT statement, got {got}; only reading is allowed")
        estimate = int(dry.total_bytes_processed or 0)
        if estimate > bounds.bytes_max:
            raise QueryRefused(
                f"the query would scan {estimate:,} bytes, more than the budget of "
                f"{bounds.bytes_max:,}; nothing was scanned. Filter by the partition column, "
                "or raise maximum_bytes_billed"
            )
        if bounds.tables is None:
            return
        read = {f"{one.project}.{one.dataset_id}.{one.table_id}" for one in dry.referenced_tables}
        if foreign := sorted(read - set(bounds.tables)):
            raise QueryRefused(f"only the tables of the sink can be read, not {foreign[0]}")

    def _start(self, text: str, config: Any, left: Callable[[], float]) -> Any:
        return self._client.query(
            text, job_config=config, timeout=left(), retry=self._retry(left), job_retry=None
        )

    def _retry(self, left: Callable[[], float]) -> Any:
        return self._library.DEFAULT_RETRY.with_timeout(left())

    def _config(self, parameters: Sequence[Any], **options: Any) -> Any:
        address = self._address
        if address.dataset is not None:
            options["default_dataset"] = f"{address.project}.{address.dataset}"
        return self._library.QueryJobConfig(
            query_parameters=list(parameters), labels=LABELS, **options
        )

    def _parameter(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return self._library.ArrayQueryParameter(name, _type_of(value[0]), value)
        return self._library.ScalarQueryParameter(name, _type_of(value), value)


def lowest(bounds: QueryBounds, bytes_max: int | None) -> QueryBounds:
    """Return the bounds with the lower of two budgets."""
    if bytes_max is None:
        return bounds
    return replace(bounds, bytes_max=min(bounds.bytes_max, bytes_max))


def _type_of(value: object) -> str:
    """Return BigQuery's type of a value; text that is compared with a date is coerced to one."""
    for kind, name in ((bool, "BOOL"), (int, "INT64"), (float, "FLOAT64")):
        if isinstance(value, kind):
            return name
    return "STRING"
