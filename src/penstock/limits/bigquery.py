"""BigQuery tables: limits as Google documents them, and a DML job that keeps to them.

    from google.cloud import bigquery
    from penstock.limits.bigquery import dml

    dml(bigquery.Client(), "MERGE nba_raw.br_rosters_current USING …",
        table="nba_raw.br_rosters_current")

Google lets 10 INSERTs and 2 MERGE, UPDATE or DELETE jobs run at a time per table, and queues 20
more of the latter before it refuses. Waiting in our line keeps the order and costs no job's time,
so only those that run are let in; `queued` lets some more wait there, for less time between two.

Nothing of Google's is imported: any client with `query(sql, job_config=…)` and jobs with
`result(timeout=…)` will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar

from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput
from penstock.limits.rules import LimitTerms
from penstock.limits.slots.registry import StoreOwner, broker_here
from penstock.limits.slots.retry import QuotaRetry
from penstock.limits.slots.slot import TIMEOUT_DEFAULT, SlotOptions, SlotRequest

T = TypeVar("T")
Statement = Literal["insert", "mutate"]

INSERTS_AT_ONCE: Final = 10
MUTATIONS_AT_ONCE: Final = 2
MUTATIONS_QUEUED: Final = 20
JOB_SECONDS: Final = 120.0

_TABLE = re.compile(
    r"(?:[A-Za-z0-9:._-]{1,100}\.)?[A-Za-z0-9_]{1,100}\.[A-Za-z0-9_$-]{1,60}", re.ASCII
)
_COMMENTS = re.compile(r"/\*.*?\*/|(?:--|#)[^\n]*", re.DOTALL)
_WORD = re.compile(r"\s*\(*\s*([A-Za-z]+)")


class Job(Protocol):
    """A running job, as google-cloud-bigquery's QueryJob."""

    def result(self, *, timeout: float) -> Any:
        """Wait for the end; the rows, or the error."""
        ...


class QueryClient(Protocol):
    """What is needed of google-cloud-bigquery's Client."""

    def query(self, query: str, **options: Any) -> Job:
        """Start a job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DmlOptions:
    """How a DML job is run.

    timeout_us: the longest wait for a slot. job_seconds: the longest a job may take. queued: how
    many MERGE, UPDATE or DELETE jobs may wait inside BigQuery besides the two that run (0 to 20).
    """

    timeout_us: int = TIMEOUT_DEFAULT
    job_seconds: float = JOB_SECONDS
    queued: int = 0
    retry: QuotaRetry | None = None
    client: StoreOwner | None = None


def table_slot(
    table: str, statement: Statement = "mutate", options: DmlOptions | None = None
) -> SlotRequest:
    """A slot for one DML job on a table (`dataset.table`), made adaptive with Google's figures."""
    given = options or DmlOptions()
    if not _TABLE.fullmatch(str(table)):
        raise InvalidInput("table", "dataset.table or project.dataset.table", table)
    if not 0 <= given.queued <= MUTATIONS_QUEUED:
        raise InvalidInput("queued", f"from 0 to {MUTATIONS_QUEUED}", given.queued)
    capacity = INSERTS_AT_ONCE if statement == "insert" else MUTATIONS_AT_ONCE + given.queued
    chosen = SlotOptions(
        name=f"bq:{table}" + (":insert" if statement == "insert" else ""),
        timeout_us=given.timeout_us,
        terms=LimitTerms(capacity=capacity, is_adaptive=True),
    )
    return SlotRequest(lambda: broker_here(given.client), chosen)


def statement_of(sql: str) -> Statement:
    """Which of the two limits a statement falls under; InvalidInput when it is no DML."""
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
    """Run one DML statement on a table: slot, job, time-out, retries of quota errors and conflicts.

    Returns what the job's `result` returns. `query` is handed on to `client.query` (job_config,
    location ...). The job of a try that timed out is cancelled where the client can do that.
    """
    given = options or DmlOptions()
    statement = statement_of(sql)

    def body(_: object) -> Any:
        job = client.query(sql, **query)
        return _finished(job, given.job_seconds)

    return run_dml(body, table=table, statement=statement, options=given)


def run_dml(
    body: Callable[[Any], T],
    *,
    table: str,
    statement: Statement = "mutate",
    options: DmlOptions | None = None,
) -> T:
    """Run a callable that does one DML job of yours, under the table's slot and with the retry.

    It is called with the slot (`slot.token` fences), once per try.
    """
    given = options or DmlOptions()
    policy = given.retry or QuotaRetry()
    return policy.call(body, table_slot(table, statement, given))


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


assert JOB_SECONDS * SECOND < TIMEOUT_DEFAULT, "a slot may be waited for longer than a job takes"
