"""Reports that commit in another order than they were written, and many at once."""

from __future__ import annotations

import threading

import pytest

from penstock.db.postgres.store import PostgresStore
from penstock.db.store import Store, Tx
from penstock.runs import attempt_result
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock
from tests.entities.scene import Scene

WAIT_S = 30


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    """A scene in which every incremental processor has succeeded once."""
    made = Scene(store, clock)
    made.open("2025-11-15")
    made.upstream({"players": [1]})
    made.downstream()
    return made


def test_a_report_that_commits_late_is_received_later(scene: Scene) -> None:
    """Its row has a lower id than reports that a started processor has already received."""
    if not isinstance(scene.stage.store, PostgresStore):
        pytest.skip("SQLite has one writer: a report is written and committed before the next")
    scene.open("2025-11-16")
    slow = scene.take("rosters")
    written, go = threading.Event(), threading.Event()
    text = '{"entities_changed": {"players": [2]}}'
    end = attempt_result.completed_result(slow, result=text)

    def body(tx: Tx) -> None:
        run_end_many(tx, [end])
        written.set()
        assert go.wait(WAIT_S)

    thread = threading.Thread(target=lambda: scene.stage.write(body))
    thread.start()
    try:
        assert written.wait(WAIT_S)
        games = scene.take("games")
        scene.open("2025-11-17")
        scene.end(scene.take("rosters"), {"players": [3]})
        scene.end(scene.take("games"), {})
        scene.step()
        assert scene.downstream()["players"].ids("players") == (3,)
    finally:
        go.set()
        thread.join(WAIT_S)
    scene.end(games, {})
    scene.step()
    assert scene.downstream()["players"].ids("players") == (2,)


def test_reports_of_a_batch(scene: Scene) -> None:
    """Many runs that end in one transaction each keep their own report."""
    flows = [scene.open(f"2025-11-{number}") for number in range(16, 22)]
    ends = []
    for number, flow_id in enumerate(flows):
        run = scene.take("rosters", flow_id)
        text = f'{{"entities_changed": {{"players": [{number}]}}}}'
        ends.append(attempt_result.completed_result(run, result=text))
    scene.stage.write(lambda tx: run_end_many(tx, ends))
    for flow_id in flows:
        scene.end(scene.take("games", flow_id), {})
    scene.step()
    found = scene.changed(scene.take("players", flows[0]))
    assert set(found.ids("players") or ()) == set(range(6))
    detail = scene.stage.rows_of(flows[3])
    counts = {one.processor: one.entities for one in detail.completions}
    assert counts["rosters"] == '{"players":1}' or counts["rosters"] == '{"players": 1}'
