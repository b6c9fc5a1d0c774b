"""`run_pending` executes what is due in the caller's thread, flows included."""

import sqlite3
from pathlib import Path

import pytest

from penstock import Pipeline, RunContext, connect, run_pending, same_day
from penstock.client import Client
from penstock.flows.records import FlowRequest


def _pipeline(done: list[str], warehouse: Path) -> Pipeline:
    made = Pipeline("shop", partition="day", warehouse=f"sqlite:{warehouse}")
    raw = made.phase("raw")

    @raw.processor
    def fetch(_: RunContext) -> None:
        done.append("fetch")

    totals = made.phase("totals", after=raw)

    @totals.processor(pool="heavy", needs=[same_day("orders", expect=1)])
    def add_up(_: RunContext) -> None:
        done.append("add_up")

    return made


def _state(client: Client) -> str:
    (flow,) = client.flows.list().items
    return str(flow.state)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_flow_is_driven(tmp_path: Path, rows: int) -> None:
    """All phases run, over several pools; a flow whose gate waits stays open and runs later."""
    warehouse = tmp_path / "shop.db"
    data = sqlite3.connect(warehouse)
    data.execute("CREATE TABLE orders (day text)")
    data.executemany("INSERT INTO orders VALUES (?)", [("2026-01-02",)] * rows)
    data.commit()
    done: list[str] = []
    pipeline = _pipeline(done, warehouse)
    with connect(f"sqlite:{tmp_path / 'p.db'}") as client:
        client.register([pipeline])
        client.flows.trigger(FlowRequest(pipeline="shop", partition="2026-01-02", mode="manual"))
        assert run_pending(client, [pipeline]) == 1 + rows
        assert done == ["fetch", "add_up"][: 1 + rows]
        assert (_state(client) == "COMPLETE") is bool(rows)
        assert run_pending(client, [pipeline]) == 0
    data.close()
