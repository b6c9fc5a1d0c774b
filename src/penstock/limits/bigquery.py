"""BigQuery DML within the per-table limits that Google documents.

    from google.cloud import bigquery
    from penstock.limits.bigquery import dml

    dml(bigquery.Client(), "MERGE nba_raw.br_rosters_current USING …",
        table="nba_raw.br_rosters_current")

Google runs 10 INSERT jobs and 2 MERGE, UPDATE or DELETE jobs at a time per table, and queues 20
more of the latter before it rejects any. Waiting in Penstock's queue keeps the order and does not
count towards a job's timeout, so by default only as many jobs are started as can run; `queued`
starts more, which wait in BigQuery and shorten the gap between two jobs.

`dml` imports no Google library: any client with `query(sql, job_config=…)` and jobs with
`result(timeout=…)` works. `merge_rows` needs the client of google-cloud-bigquery.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar, cast

import msgspec

from penstock.core.clock import DAY, SECOND, SystemClock, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import new_secret
from penstock.limits.merge_statement import ORDER, merge_statement
from penstock.limits.rules import LimitSettings
from penstock.limits.slots.registry import StoreOwner, current_broker
from penstock.limits.slots.retry import QuotaRetry
from penstock.limits.slots.slot import TIMEOUT_DEFAULT, Slot, SlotOptions, SlotRequest

__all__ = [
    "DmlOptions",
    "Job",
    "QueryClient",
    "dml",
    "merge_rows",
    "run_dml",
    "statement_of",
    "table_slot",
]

T = TypeVar("T")
Statement = Literal["insert", "mutate"]

MAX_CONCURRENT_INSERTS: Final = 10
MAX_CONCURRENT_MUTATIONS: Final = 2
MAX_QUEUED_MUTATIONS: Final = 20
JOB_TIMEOUT_S: Final = 120.0

_TABLE = re.compile(
    r"(?:[A-Za-z0-9:._-]{1,100}\.)?[A-Za-z0-9_]{1,100}\.[A-Za-z0-9_$-]{1,60}", re.ASCII
)
_COMMENTS = re.compile(r"/\*.*?\*/|(?:--|#)[^\n]*", re.DOTALL)
_WORD = re.compile(r"\s*\(*\s*([A-Za-z]+)")


class Job(Protocol):
    """A started job, such as google-cloud-bigquery's QueryJob."""

    def result(self, *, timeout: float) -> Any:
        """Wait for the job to end; return its rows or raise its error."""
        ...


class QueryClient(Protocol):
    """A client that starts jobs, such as google-cloud-bigquery's Client."""

    def query(self, query: str, **options: Any) -> Job:
        """Start a job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DmlOptions:
    """Options of a DML job.

    timeout_us: maximum wait for a slot. job_timeout_s: timeout of a job. queued: number of MERGE,
    UPDATE or DELETE jobs that may wait in BigQuery in addition to the two that run (0 to 20).
    retry: retry policy, None for the default. client: Penstock client whose database has the limit.
    """

    timeout_us: int = TIMEOUT_DEFAULT
    job_timeout_s: float = JOB_TIMEOUT_S
    queued: int = 0
    retry: QuotaRetry | None = None
    client: StoreOwner | None = None


def table_slot(
    table: str, statement: Statement = "mutate", options: DmlOptions | None = None
) -> SlotRequest:
    """Return a slot request for one DML job on a table (`dataset.table`).

    The limit is adaptive and starts with the capacity that Google documents.
    """
    given = options or DmlOptions()
    if not _TABLE.fullmatch(str(table)):
        raise InvalidInput("table", "dataset.table or project.dataset.table", table)
    if not 0 <= given.queued <= MAX_QUEUED_MUTATIONS:
        raise InvalidInput("queued", f"from 0 to {MAX_QUEUED_MUTATIONS}", given.queued)
    capacity = (
        MAX_CONCURRENT_INSERTS if statement == "insert" else MAX_CONCURRENT_MUTATIONS + given.queued
    )
    chosen = SlotOptions(
        name=f"bq:{table}" + (":insert" if statement == "insert" else ""),
        timeout_us=given.timeout_us,
        terms=LimitSettings(capacity=capacity, is_adaptive=True),
    )
    return SlotRequest(lambda: current_broker(given.client), chosen)


def statement_of(sql: str) -> Statement:
    """Return which of the two limits applies to a statement. Raise InvalidInput for non-DML."""
    found = _WORD.match(_COMMENTS.sub(" ", sql))
    word = "" if found is None else found.group(1).upper()
    if word == "INSERT":
        return "insert"
    if word in ("MERGE", "UPDATE", "DELETE"):
        return "mutate"
    fix = "Queries and scripts are not limited per table."
    raise InvalidInput("sql", "INSERT, MERGE, UPDATE or DELETE", sql.strip()[:60], fix)


def dml(
    client: QueryClient, sql: str, *, table: str, options: DmlOptions | None = None, **query: Any
) -> Any:
    """Run one DML statement on a table under its slot, and retry quota errors and conflicts.

    Return the value of the job's `result`. `query` is passed to `QueryClient.query` (job_config,
    location ...). The job of an attempt that timed out is cancelled if the client supports that.
    """
    given = options or DmlOptions()
    statement = statement_of(sql)

    def body(_: object) -> Any:
        job = client.query(sql, **query)
        return _finished(job, given.job_timeout_s)

    return run_dml(body, table=table, statement=statement, options=given)


def merge_rows(
    client: Any,
    rows: Sequence[Mapping[str, Any]],
    *,
    table: str,
    key: Sequence[str],
    version: str | None = None,
    options: DmlOptions | None = None,
) -> None:
    """Merge rows into a table by their key, under the table's slot and with retries.

    Of rows with the same key, the one with the newest `version` is used, else the last; a stored
    row with a newer version is kept. A repeated call therefore changes nothing, and rows may arrive
    twice or out of order. The rows are loaded into a staging table next to the table, which is
    deleted afterwards and expires after a day.
    """
    if not rows:
        return
    empty = [row for row in rows if any(row.get(name) is None for name in key)]
    if empty:
        raise InvalidInput("rows", f"a value of {', '.join(key)} in each row", dict(empty[0]))
    target = client.get_table(table)
    given = set().union(*rows)
    fields = [one for one in target.schema if one.name in given]
    if unknown := given - {one.name for one in fields}:
        raise InvalidInput("rows", f"columns of {table}", ", ".join(sorted(unknown)))
    names = [one.name for one in fields]
    full = f"{target.project}.{target.dataset_id}"
    staging = f"{full}.penstock_staging_{new_secret()[:20].replace('-', '_')}"
    text = merge_statement(f"{full}.{target.table_id}", staging, names, key=key, version=version)
    try:
        _stage(client, staging, fields, rows)
        dml(client, text, table=table, options=options)
    finally:
        client.delete_table(staging, not_found_ok=True)


def _stage(
    client: Any, staging: str, fields: Sequence[Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Load rows into a new table, in their order."""
    # Optional: only users of Google's client have it.
    from google.cloud import bigquery

    relaxed = [
        bigquery.SchemaField(one.name, one.field_type, "REPEATED", fields=one.fields)
        if one.mode == "REPEATED"
        else bigquery.SchemaField(one.name, one.field_type, fields=one.fields)
        for one in fields
    ]
    made: Any = bigquery.Table(staging, schema=[*relaxed, bigquery.SchemaField(ORDER, "INT64")])
    made.expires = to_datetime(SystemClock().now() + DAY)
    client.create_table(made)
    encode = msgspec.json.Encoder().encode
    encoded = [encode({**row, ORDER: number}) for number, row in enumerate(rows)]
    config: Any = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON", schema=made.schema)
    data = io.BytesIO(b"\n".join(encoded))
    client.load_table_from_file(data, staging, job_config=config).result(timeout=JOB_TIMEOUT_S)


def run_dml(
    body: Callable[[Slot], T],
    *,
    table: str,
    statement: Statement = "mutate",
    options: DmlOptions | None = None,
) -> T:
    """Run a callable that executes one DML job under the table's slot, with retries.

    It is called with the slot (`slot.token` is the fencing token), once per attempt.
    """
    given = options or DmlOptions()
    policy = given.retry or QuotaRetry()
    # With a slot request, every attempt has a slot.
    attempt = cast("Callable[[Slot | None], T]", body)
    return policy.call(attempt, table_slot(table, statement, given))


def _finished(job: Job, seconds: float) -> Any:
    try:
        return job.result(timeout=seconds)
    except Exception as error:
        cancel = getattr(job, "cancel", None)
        if callable(cancel) and _is_timeout(error):
            cancel()
        raise


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ in ("Timeout", "RetryError")


assert JOB_TIMEOUT_S * SECOND < TIMEOUT_DEFAULT, (
    "the default wait for a slot must exceed a job's timeout"
)
