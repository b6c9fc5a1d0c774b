"""Lists of runs by every filter, and the fields of a run, on both engines."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from penstock.core.clock import HOUR, MINUTE, SECOND, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.records.record import to_json_value
from penstock.db.statements import load
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs import attempt_result
from penstock.runs.client import listing
from tests.kits.client_harness import Harness


def found(harness: Harness, **filters: Any) -> list[str]:
    """Return the ids of a list of runs, read page by page."""
    ids: list[str] = []
    cursor = None
    while True:
        page = harness.client.runs.list(**filters, limit=2, cursor=cursor)
        ids += [run.run_id for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


@pytest.fixture
def mixed(harness: Harness) -> dict[str, str]:
    """Create runs that differ in one field each, half of them ended."""
    made: dict[str, int] = {}
    for name, fields in {
        "plain": {},
        "left": {"pipeline": "pair", "processor": "left"},
        "day": {"partition": "2025-12-31"},
        "other_day": {"partition": "2025-12-30"},
        "cause": {"correlation_id": "01cause-a"},
        "same_cause": {"correlation_id": "01cause-a"},
        "like_cause": {"correlation_id": "01cause-b"},
    }.items():
        made[f"{name}_ended"] = harness.submit(**fields)
        harness.complete(*harness.claim())
        made[name] = harness.submit(**fields)
        harness.claim()
    return {name: encode("run", number) for name, number in made.items()}


FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"processor": "left"}, {"left"}),
    ({"processor": "entry.left"}, {"left"}),
    ({"pipeline": "pair"}, {"left"}),
    ({"partition": "2025-12-31"}, {"day"}),
    ({"correlation_id": "01cause-a"}, {"cause", "same_cause"}),
    ({"correlation_id": "01cause-a", "processor": "left"}, set()),
    ({"search": "01cause"}, {"cause", "same_cause", "like_cause"}),
    ({"search": "01cause-b"}, {"like_cause"}),
    ({"search": "01CAUSE"}, set()),
    ({"search": "%"}, set()),
    ({"search": "01cause", "correlation_id": "01cause-b"}, {"like_cause"}),
    ({"correlation_id": "01cause"}, set()),
    ({"message_id": "17"}, set()),
    ({"error_type": "VALIDATION_ERROR"}, set()),
]


@pytest.mark.parametrize(("filters", "names"), FILTERS)
@pytest.mark.parametrize("customer", [None, "acme"])
def test_filters(
    harness: Harness,
    mixed: dict[str, str],
    filters: dict[str, Any],
    names: set[str],
    customer: str | None,
) -> None:
    """Each filter finds the live and the ended runs, over any number of pages."""
    ids = found(harness, customer=customer, **filters)
    assert len(ids) == len(set(ids))
    assert set(ids) == {mixed[one] for name in names for one in (name, f"{name}_ended")}
    harness.submit(customer="other")
    assert found(harness, customer="other", **filters) == []
    live = {mixed[name] for name in names}
    assert set(found(harness, customer=customer, state="RUNNING", **filters)) == live


def test_a_partition_is_searched_for_one_customer(harness: Harness, mixed: dict[str, str]) -> None:
    """A prefix of a partition finds ended runs of one customer; live ones are always searched."""
    both = {mixed[name] for name in ("day", "day_ended", "other_day", "other_day_ended")}
    assert set(found(harness, customer="acme", search="2025-12")) == both
    assert set(harness_ids(harness.client.scoped("acme").runs.list(search="2025-12"))) == both
    assert set(found(harness, search="2025-12")) == {mixed["day"], mixed["other_day"]}


def harness_ids(page: Any) -> list[str]:
    """Return the ids of a page."""
    return [run.run_id for run in page.items]


def test_a_run_is_searched_by_its_id(harness: Harness, mixed: dict[str, str]) -> None:
    """A whole id finds its run, live or ended, of the caller's customer only; a part finds none."""
    for name in ("plain", "plain_ended"):
        assert found(harness, search=mixed[name]) == [mixed[name]]
        assert found(harness, search=mixed[name][:-2]) == []
    harness.submit(customer="other")
    assert harness_ids(harness.client.scoped("other").runs.list(search=mixed["plain"])) == []
    for bad in ("", "a\x00", "x" * 300):
        with pytest.raises(InvalidInput, match="search"):
            harness.client.runs.list(search=bad)
    with pytest.raises(InvalidInput, match="config_id"):
        harness.client.runs.list(config_id="17")


def test_messages_configs_and_errors(harness: Harness) -> None:
    """Runs are found by the message or the config that started them, and by their error."""
    config = harness.config()
    harness.clock.advance(HOUR)
    harness.tick()
    failed = harness.take()
    harness.fail(failed)
    name = encode("run", failed.run_id)
    config_id = encode("cfg", config.config_id)
    assert found(harness, config_id=config_id) == [name]
    assert found(harness, error_type="VALIDATION_ERROR") == [name]
    assert found(harness, error_type="VALIDATION_ERROR", state="COMPLETED") == []
    later = harness.submit()
    harness.sql(f"UPDATE runs SET trigger_message_id = '71' WHERE run_id = {later}")
    assert found(harness, message_id="71") == [encode("run", later)]
    harness.complete(harness.take())
    for customer in (None, "acme"):
        assert found(harness, message_id="71", customer=customer) == [encode("run", later)]
    assert harness.run(later).trigger_message_id == "71"


def test_a_search_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix that many ended runs have returns the first ones in the order of the index."""
    monkeypatch.setattr(listing, "SEARCH_MAX", 3)
    made = [harness.submit(correlation_id=f"c-{n}") for n in range(5)]
    harness.complete(*harness.claim())
    assert found(harness, search="c-") == [encode("run", number) for number in made[:3]][::-1]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("run_list_ended_correlation", "correlation"),
        ("run_list_ended_message", "message"),
        ("run_list_ended_partition", "partition"),
        ("run_search_correlation", "correlation"),
        ("run_search_partition", "partition"),
    ],
)
def test_filters_use_their_index(harness: Harness, name: str, index: str) -> None:
    """Ended runs are found by an index, not by reading the history."""
    is_postgres = "postgres" in type(harness.store).__name__.lower()
    statement = load("postgres" if is_postgres else "sqlite")[name]
    values: dict[str, Any] = {
        "prefix": "c", "prefix_end": "d", "before": 2**62, "occurrence_from": 0,
        "occurrence_to": 2**62, "ended_from": 0, "ended_to": 2**62, "ended_before": 0,
        "by_end": False, "limit": 50, "n": 1_000,
    }  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "correlation": {"correlation_id": "c"},
        "message": {"message_id": "m"},
        "partition": {"customer": 7, "partition": "p"},
    }
    values |= own[index]
    given = {key: values.get(key) for key in statement.all_params}
    (text,) = statement.texts

    def body(tx: Any) -> str:
        connection = tx._connection
        if is_postgres:
            connection.execute("SET LOCAL enable_seqscan = off")
            return "\n".join(row[0] for row in connection.execute(f"EXPLAIN {text}", given))
        return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", given))

    shown = harness.store.write(body)
    if is_postgres:
        column = {"message": "trigger_message_id", "correlation": "correlation_id"}.get(
            index, index
        )
        assert re.search(rf"Index Cond: .*\(?{column}\)?", shown), shown
    else:
        assert f"history_for_{index}" in shown, shown


def test_everything_stored_is_readable(harness: Harness) -> None:
    """A run has its token, time-out, claims, stages, bytes, cost and whether it was retried."""
    paid = Pipeline("paid", rate_second=0.5, rate_gb=2.0)
    paid.processor("work")(lambda _: None)
    harness.client.register([paid])
    run_id = harness.submit("paid")
    pending = harness.run(run_id)
    assert (pending.fencing_token, pending.lapsed_claims, pending.timeout_at) == (0, 0, None)
    assert pending.max_duration == timedelta(hours=1)
    held = harness.take()
    running = harness.run(run_id)
    assert running.fencing_token == held.token > 0
    assert running.started_at is not None
    assert running.timeout_at == running.started_at + timedelta(hours=1)
    assert harness.cancel(run_id, "too slow", actor="ann") == "asked"
    asked = harness.run(run_id)
    assert (asked.cancel_requested_by, asked.cancel_reason) == ("ann", "too slow")
    harness.clock.advance(10 * SECOND)
    stages = '{"extract":1500000,"load":8000000}'
    end = attempt_result.completed_result(held, duration_us=10 * SECOND, bytes=10**9, stages=stages)
    harness.end(end)
    ended = harness.run(run_id)
    assert ended.stages == {"extract": timedelta(seconds=1.5), "load": timedelta(seconds=8)}
    assert to_json_value(ended)["stages"] == {"extract": 1.5, "load": 8}
    assert (ended.bytes_processed, ended.estimated_cost) == (10**9, 7.0)
    assert (ended.duration, ended.fencing_token) == (timedelta(seconds=10), held.token)
    assert (ended.was_retried, ended.is_stale, ended.timeout_at) == (False, False, None)


def test_retried_and_stale(harness: Harness) -> None:
    """A failed attempt says that it was retried, and whether its worker was lost."""
    first = harness.submit()
    harness.fail(harness.take(), error_type="SERVICE_UNAVAILABLE")
    assert (harness.run(first).was_retried, harness.run(first).is_stale) == (True, False)
    second = harness.submit()
    harness.end(attempt_result.stale(harness.take(), jitter=0.0))
    assert (harness.run(second).was_retried, harness.run(second).is_stale) == (True, True)


def test_times(harness: Harness) -> None:
    """The time range is that of the occurrences, for live and ended runs."""
    early = harness.submit()
    harness.complete(harness.take())
    harness.clock.advance(MINUTE)
    late = harness.submit()
    now = to_datetime(harness.clock.now())
    assert found(harness, since=now) == [encode("run", late)]
    assert found(harness, until=now) == [encode("run", early)]
    assert found(harness, since=now, search=encode("run", early)) == []
