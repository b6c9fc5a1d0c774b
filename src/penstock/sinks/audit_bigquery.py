"""Audit sink in BigQuery: one table for each log, one load job for each batch.

A load job is atomic, and its id can be used once. The id names the table, the time at which the
table was created and the number of the batch, so that only one of two writers succeeds, and a
writer whose response was lost finds its own job. The manifest entry of a batch is in the column
`batch_entry` of its first row: it is stored by the same job as the rows, so there are never rows
without an entry.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any, Final

import msgspec

from penstock.core.clock import DAY, MINUTE, Micros, to_datetime
from penstock.probes.bigquery.address import BigQueryAddress
from penstock.probes.bigquery.bounded_query import (
    BoundedQueries,
    QueryBounds,
    QueryRefused,
    QueryTimeout,
    SelectedRows,
)
from penstock.probes.bigquery.connection import (
    failure_text,
    google_errors,
    open_client,
    require_bigquery,
)
from penstock.shipping.batches import (
    LogBatch,
    ManifestEntry,
    SinkConflict,
    SinkUnavailable,
    StoredFile,
)
from penstock.shipping.tables import TABLES, ShippedTable

TYPES: Final = {
    "text": "STRING",
    "integer": "INT64",
    "float": "FLOAT64",
    "boolean": "BOOL",
    "time": "TIMESTAMP",
}
BATCH: Final = "batch_number"
ENTRY: Final = "batch_entry"
DATE: Final = "date"
LOAD_SECONDS: Final = 300.0
READ_SECONDS: Final = 300.0
CALL_SECONDS: Final = 30.0
RECENT: Final = timedelta(days=7)
"""Maximum age of the next batch's rows relative to the newest entry's first day."""
EXACT_MAX: Final = 2**53
"""Largest integer written as a number; JSON parsers may read larger ones as floating-point numbers.
"""


class BigQuerySink:
    """A dataset with a table for each log."""

    interval_us: Micros = 2 * MINUTE
    """Minimum interval; BigQuery accepts 1,500 load jobs a day for a table."""
    blocks_max = 200

    def __init__(self, address: BigQueryAddress) -> None:
        """Use a dataset; it and its tables are created when the first batch is written."""
        self.address = address
        self.name = f"bigquery:{address.project}.{address.dataset}"
        self._lock = threading.Lock()
        self._client: Any = None
        self._library: Any = None
        self._tables: dict[str, Any] = {}
        self._since: dict[str, str] = {}
        self._failed: dict[str, int] = {}

    def last(self, relation: str) -> ManifestEntry | None:
        """Return the newest entry of a log; None if it has none."""
        text = f"SELECT max({ENTRY}) FROM {self._quoted(relation)}"
        since = self._since.get(relation)
        found = None
        if since is not None:
            # Only recent partitions are scanned, once it is known where the newest entries are.
            found = self._read(relation, f"{text} WHERE {DATE} >= @since", {"since": since})
        if found is None or found.rows[0][0] is None:
            found = self._read(relation, text)
        if found is None or found.rows[0][0] is None:
            return None
        entry = _entry(found.rows[0][0])
        day = date.fromisoformat(_day(entry.files[0].path.partition("$")[2]))
        self._since[relation] = (day - RECENT).isoformat()
        return entry

    def entries(self, relation: str) -> Iterator[ManifestEntry]:
        """Yield all entries of a log in order."""
        text = (
            f"SELECT {ENTRY} FROM {self._quoted(relation)} WHERE {ENTRY} IS NOT NULL "
            f"ORDER BY {ENTRY}"
        )
        found = self._read(relation, text)
        for row in [] if found is None else found.rows:
            yield _entry(row[0])

    def write(self, batch: LogBatch) -> ManifestEntry:
        """Load a batch with its entry. Raise SinkConflict if its number is taken."""
        with self._errors():
            table = self._ready(batch.table)
            entry = batch.entry(_parts(batch))
            data = encode(batch, entry)
            name = _job_name(table, batch)
            attempt = self._failed.get(name, 0) + 1
            while not self._load(table, data, f"{name}_{attempt}"):
                # The job of this id failed in an earlier attempt: its id is used up.
                self._failed[name] = attempt
                attempt += 1
        self._failed.pop(name, None)
        return entry

    def rows(self, table: ShippedTable, entry: ManifestEntry) -> list[tuple[Any, ...]]:
        """Return the rows of a batch in the order of their keys."""
        names = ", ".join(
            f"UNIX_MICROS(`{name}`)" if form == "time" else f"`{name}`"
            for name, form in table.columns
        )
        days = sorted(file.path.partition("$")[2] for file in entry.files)
        text = (
            f"SELECT {names} FROM {self._quoted(table.name)} WHERE {BATCH} = @number "
            f"AND {DATE} BETWEEN @first AND @last ORDER BY {', '.join(table.key)}"
        )
        values = {"number": entry.number, "first": _day(days[0]), "last": _day(days[-1])}
        found = self._read(table.name, text, values)
        return [] if found is None else found.rows

    def unlisted(self) -> list[str]:
        """Return batches that have rows but no entry; Penstock never writes such batches."""
        made = []
        for table in TABLES:
            known = {entry.number for entry in self.entries(table.name)}
            found = self._read(
                table.name, f"SELECT DISTINCT {BATCH} FROM {self._quoted(table.name)}"
            )
            numbers = set() if found is None else {row[0] for row in found.rows}
            made += [f"{table.name} batch {number}" for number in numbers - known]
        return sorted(made)

    def select(self, text: str, bounds: QueryBounds) -> SelectedRows:
        """Execute a user's SELECT over the tables of the sink."""
        return self._queries().select(text, {}, bounds)

    def close(self) -> None:
        """Close the client's connections."""
        with self._lock:
            client, self._client = self._client, None
            self._tables.clear()
        if client is not None:
            client.close()

    def _load(self, table: Any, data: bytes, job_id: str) -> bool:
        """Load rows by a job of this id; return False if such a job failed earlier."""
        library = self._library
        config = library.LoadJobConfig(
            source_format=library.SourceFormat.NEWLINE_DELIMITED_JSON,
            write_disposition=library.WriteDisposition.WRITE_APPEND,
            create_disposition=library.CreateDisposition.CREATE_NEVER,
            schema=table.schema,
            labels={"service": "penstock"},
        )
        # Optional, like the library itself.
        from google.api_core.exceptions import Conflict

        client = self._opened()
        try:
            job = client.load_table_from_file(
                io.BytesIO(data),
                table.reference,
                job_id=job_id,
                job_config=config,
                timeout=LOAD_SECONDS,
            )
        except Conflict:
            job = client.get_job(job_id, **self._bounded())
            if self._is_loaded(job):
                raise SinkConflict(job_id) from None
            return False
        if not self._is_loaded(job):
            raise SinkUnavailable(f"load job {job_id} failed: {_job_error(job)}")
        return True

    def _is_loaded(self, job: Any) -> bool:
        """Wait for a load job; return whether it succeeded."""
        # Optional, like the library itself.
        from google.api_core.exceptions import GoogleAPICallError

        try:
            job.result(timeout=LOAD_SECONDS)
        except GoogleAPICallError:
            if job.state == "DONE" and job.error_result:
                return False
            raise
        return True

    def _ready(self, shipped: ShippedTable) -> Any:
        """Return the table of a log, created or extended with new columns if necessary."""
        found = self._table(shipped.name)
        library, client = self._library, self._opened()
        schema = _schema(shipped, library)
        if found is None:
            # The client's location is the dataset's, if the address names one.
            client.create_dataset(self._dataset(), exists_ok=True, **self._bounded())
            wanted = library.Table(self._full(shipped.name), schema=schema)
            wanted.time_partitioning = library.TimePartitioning(
                type_=library.TimePartitioningType.DAY, field=DATE
            )
            wanted.clustering_fields = [BATCH]
            client.create_table(wanted, exists_ok=True, **self._bounded())
            found = self._table(shipped.name)
        names = {field.name for field in found.schema}
        if added := [field for field in schema if field.name not in names]:
            found.schema = [*found.schema, *added]
            found = self._tables[shipped.name] = client.update_table(
                found, ["schema"], **self._bounded()
            )
        return found

    def _table(self, relation: str) -> Any:
        """Return a table from BigQuery; None if it does not exist."""
        client = self._opened()
        # Optional, like the library itself.
        from google.api_core.exceptions import NotFound

        if relation not in self._tables:
            try:
                self._tables[relation] = client.get_table(self._full(relation), **self._bounded())
            except NotFound:
                return None
        return self._tables[relation]

    def _read(
        self, relation: str, text: str, values: dict[str, Any] | None = None
    ) -> SelectedRows | None:
        """Execute a query over a log; None if it has no table yet."""
        with self._errors():
            if self._table(relation) is None:
                return None
            bounds = QueryBounds(
                bytes_max=self.address.bytes_max, rows_max=None, seconds=READ_SECONDS
            )
            return self._queries().select(text, values or {}, bounds)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate the library's errors to SinkUnavailable; cached tables are read again."""
        self._opened()
        try:
            yield
        except (QueryRefused, QueryTimeout) as error:
            raise SinkUnavailable(str(error)) from None
        except google_errors() as error:
            self._tables.clear()
            self._since.clear()
            raise SinkUnavailable(failure_text(error)) from error

    def _queries(self) -> BoundedQueries:
        client = self._opened()
        return BoundedQueries(self.address, client, self._library)

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                self._library = require_bigquery("audit_sink")
                try:
                    self._client = open_client(self.address, self._library)
                except google_errors() as error:
                    raise SinkUnavailable(failure_text(error)) from None
            return self._client

    def _bounded(self) -> dict[str, Any]:
        """Return options that bound a call; Google's library would retry for ten minutes."""
        return {
            "timeout": CALL_SECONDS,
            "retry": self._library.DEFAULT_RETRY.with_timeout(CALL_SECONDS),
        }

    def _dataset(self) -> str:
        return f"{self.address.project}.{self.address.dataset}"

    def _full(self, relation: str) -> str:
        return f"{self._dataset()}.{relation}"

    def _quoted(self, relation: str) -> str:
        return f"`{self._full(relation)}`"


def encode(batch: LogBatch, entry: ManifestEntry) -> bytes:
    """Return the rows of a batch as lines of JSON, the first with the manifest entry."""
    table = batch.table
    names = [*(name for name, _ in table.columns), DATE, BATCH, ENTRY]
    shape = msgspec.defstruct("Line", [(name, Any) for name in names])
    times = [n for n, (_, form) in enumerate(table.columns) if form == "time"]
    integers = [n for n, (_, form) in enumerate(table.columns) if form == "integer"]
    dated = table.index(table.dated_by)
    write = msgspec.json.Encoder().encode
    lines = []
    stored: str | None = f"{entry.number:012d} {write(entry).decode()}"
    for row in batch.rows:
        values = list(row)
        for n in times:
            if values[n] is not None:
                values[n] = f"{to_datetime(values[n]):%Y-%m-%d %H:%M:%S.%f}+00:00"
        for n in integers:
            if values[n] is not None and abs(values[n]) > EXACT_MAX:
                values[n] = str(values[n])
        lines.append(write(shape(*values, _date(row[dated]), entry.number, stored)))
        stored = None
    return b"\n".join(lines)


def _entry(text: str) -> ManifestEntry:
    try:
        return msgspec.json.decode(text[13:].encode(), type=ManifestEntry)
    except msgspec.DecodeError as error:
        raise SinkUnavailable(f"{text[:40]} is not a manifest entry: {error}") from None


def _parts(batch: LogBatch) -> list[StoredFile]:
    """Return the partitions that hold rows of a batch; BigQuery has no hash of them."""
    dated = batch.table.index(batch.table.dated_by)
    days: dict[str, int] = {}
    for row in batch.rows:
        day = _date(row[dated]).replace("-", "")
        days[day] = days.get(day, 0) + 1
    return [
        StoredFile(path=f"{batch.table.name}${day}", rows=rows, bytes=0, sha256="")
        for day, rows in sorted(days.items())
    ]


def _schema(table: ShippedTable, library: Any) -> list[Any]:
    columns = [*((name, TYPES[form]) for name, form in table.columns), (DATE, "DATE"),
               (BATCH, "INT64"), (ENTRY, "STRING")]  # fmt: skip
    return [library.SchemaField(name, form) for name, form in columns]


def _job_name(table: Any, batch: LogBatch) -> str:
    """Return the identity of a batch; it changes if the table is dropped and created again."""
    created = round(table.created.timestamp() * 1_000)
    return f"penstock_{table.dataset_id}_{table.table_id}_{created}_{batch.number:012d}"


def _job_error(job: Any) -> str:
    return str((job.error_result or {}).get("message", "unknown error"))


def _date(at: Micros) -> str:
    return f"{to_datetime(at // DAY * DAY):%Y-%m-%d}"


def _day(compact: str) -> str:
    return f"{compact[:4]}-{compact[4:6]}-{compact[6:]}"
