"""DML with Google's client: merged rows count once, under the table's limit, with retries."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import Client
from penstock.core.errors import InvalidInput
from penstock.limits.bigquery import DmlOptions, dml, merge_rows
from penstock.limits.slots.registry import broker_for_store
from penstock.limits.slots.retry import QuotaRetry
from tests.conftest import OpenStore
from tests.gcp.conftest import PROJECT
from tests.gcp.front import Front, Refusal, no_fault

pytestmark = [pytest.mark.gcp, pytest.mark.slow]


@pytest.fixture
def engine() -> str:
    """Limits are tested on both engines elsewhere."""
    return "sqlite"


@pytest.fixture
def options(open_store: OpenStore) -> Iterator[DmlOptions]:
    """Options with a store for limits, and quick retries."""
    made = Client(open_store(clock=None))
    yield DmlOptions(client=made, retry=QuotaRetry(initial_us=20_000, random=lambda: 0.5))
    broker_for_store(made.store).close()


@pytest.fixture
def table(client: Any, dataset: str) -> str:
    """A table of rosters."""
    name = f"{dataset}.rosters"
    columns = "team INT64 NOT NULL, name STRING, points FLOAT64, updated_at TIMESTAMP"
    client.query(f"CREATE TABLE {name} ({columns})").result()
    return name


def stored(client: Any, table: str) -> list[tuple[Any, ...]]:
    found = client.query(f"SELECT team, name FROM {table} ORDER BY team, name").result()
    return [tuple(row.values()) for row in found]


def row(team: int, name: str, minute: int) -> dict[str, Any]:
    return {"team": team, "name": name, "updated_at": datetime(2025, 11, 17, 8, minute, tzinfo=UTC)}


def test_merge(client: Any, table: str, options: DmlOptions) -> None:
    """The newest row of a key counts, whatever is repeated or late; nothing else stays behind."""
    more: dict[str, Any] = {"table": table, "key": ["team"], "version": "updated_at"}
    first = [row(1, "old", 1), row(1, "new", 3), row(1, "mid", 2), row(2, "b", 1)]
    for _ in range(2):
        merge_rows(client, first, options=options, **more)
        assert stored(client, table) == [(1, "new"), (2, "b")]
    merge_rows(client, [row(1, "late", 2), row(2, "c", 5)], options=options, **more)
    assert stored(client, table) == [(1, "new"), (2, "c")]
    merge_rows(client, [], options=options, **more)
    names = {one.table_id for one in client.list_tables(table.partition(".")[0])}
    assert names == {"rosters"}


def test_without_a_version(client: Any, table: str, options: DmlOptions) -> None:
    """The last row of a key counts."""
    rows = [{"team": 1, "name": "a"}, {"team": 1, "name": "b"}]
    merge_rows(client, rows, table=f"{PROJECT}.{table}", key=["team"], options=options)
    assert stored(client, table) == [(1, "b")]


def test_refused_rows(client: Any, table: str, options: DmlOptions) -> None:
    """Rows without a key, and columns that the table lacks, are refused before anything is sent."""
    for rows, key in (
        ([{"name": "a"}], ["team"]),
        ([{"team": 1, "nmae": "a"}], ["team"]),
        ([{"team": 1, "name": "a"}], ["name", "nope"]),
        ([{"team": 1}], []),
    ):
        with pytest.raises(InvalidInput):
            merge_rows(client, rows, table=table, key=key, options=options)
    assert stored(client, table) == []


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (
            400,
            "invalidQuery",
            "Could not serialize access to table rosters due to concurrent update",
        ),
        (403, "quotaExceeded", "Quota exceeded: Your table exceeded quota for concurrent DML"),
        (403, "rateLimitExceeded", "Exceeded rate limits: too many table dml operations"),
    ],
)
def test_retries(
    client: Any,
    table: str,
    options: DmlOptions,
    front: Front,
    status: int,
    reason: str,
    message: str,
) -> None:
    """Conflicts and quota errors of the real client are retried; each statement has effect once."""
    left = [2]

    def refuse(method: str, path: str) -> None:
        if method == "POST" and path.partition("?")[0].endswith("/jobs") and left[0]:
            left[0] -= 1
            raise Refusal(status, reason, message)

    front.before = refuse
    dml(
        client, f"INSERT INTO {table} (team, name) VALUES (1, 'a')", table=table, options=options,
        retry=None, job_retry=None,
    )  # fmt: skip
    front.before = no_fault
    assert left == [0]
    assert stored(client, table) == [(1, "a")]


def test_other_errors_are_raised(client: Any, table: str, options: DmlOptions) -> None:
    """An error that a retry does not cure is raised at once."""
    with pytest.raises(Exception, match="nope"):
        dml(client, f"DELETE FROM {table} WHERE nope = 1", table=table, options=options)


def test_many_at_once(client: Any, table: str, options: DmlOptions, front: Front) -> None:
    """Eight writers, two MERGEs at a time: the table's limit holds, and everything is merged."""
    more: dict[str, Any] = {"table": table, "key": ["team"], "version": "updated_at"}
    active, most = [0], [0]

    def count(method: str, path: str) -> None:
        if method == "POST" and path.partition("?")[0] == f"/bigquery/v2/projects/{PROJECT}/jobs":
            with front.lock:
                active[0] += 1
                most[0] = max(most[0], active[0])

    def uncount(method: str, path: str) -> None:
        if method == "POST" and path.partition("?")[0] == f"/bigquery/v2/projects/{PROJECT}/jobs":
            with front.lock:
                active[0] -= 1

    front.before, front.after = count, uncount
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: merge_rows(client, [row(n % 4, f"v{n}", n)], options=options, **more),
                range(8),
            )
        )
    front.before = front.after = no_fault
    assert 1 <= most[0] <= 2
    assert stored(client, table) == [(0, "v4"), (1, "v5"), (2, "v6"), (3, "v7")]
