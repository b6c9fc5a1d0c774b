"""Logs reach the sink once, whatever is interrupted, and the verification proves it."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, same_day
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.db.store import Store
from penstock.services.store import Retention
from penstock.services.upkeep import Pruner, Sealer
from penstock.shipping import store as positions
from penstock.shipping.batches import AuditSink
from penstock.shipping.client import SinkVerifier
from penstock.shipping.records import SinkVerification
from penstock.shipping.shipper import Shipper
from penstock.sinks.audit_parquet import ParquetSink
from penstock.testing.clock import VirtualClock
from tests.kits.dump import raw
from tests.kits.flows import Stage, work


def nba() -> Pipeline:
    """Two phases, the second with a table."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    first = made.phase("raw")
    first.processor("box")(work)
    made.phase("analytics", after=first).processor("sum", needs=[same_day("t.box", expect=1)])(work)
    return made


ON_SQLITE = pytest.mark.parametrize("engine", [pytest.param("sqlite", id="sqlite")])
"""For what a sink does, whatever the engine."""


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Yard:
    """A stage, a folder and what ships to it."""

    stage: Stage
    clock: VirtualClock
    folder: Path

    def sink(self) -> ParquetSink:
        """A sink as another process would open it."""
        return ParquetSink(self.folder, clock=self.clock)

    def play(self, day: str) -> None:
        """One flow, to its end."""
        self.stage.rows["t.box"] = 1
        self.stage.open(partition=day)
        self.stage.run_off()
        self.clock.advance(MINUTE)

    def settle(self) -> None:
        """Let everything become shippable: sealed, and older than the margin."""
        store = self.stage.store
        Sealer(store, block=7).run_once()
        store.write(positions.safe_until)
        self.clock.advance(2 * MINUTE)
        store.write(positions.safe_until)
        self.clock.advance(2 * MINUTE)

    def ship(self, sink: AuditSink | None = None) -> int:
        """One pass with small batches; return the rows."""
        return Shipper(self.stage.store, sink or self.sink(), blocks=2, rows=3).run_once().rows

    def verify(self) -> SinkVerification:
        """Compare everything."""
        sink = self.sink()
        return SinkVerifier(self.stage.store, sink).run(len(sink.unlisted()))

    def stored(self) -> dict[str, int]:
        """Rows of the logs in the database."""
        names = ("journal", "history", "execution_log", "dependency_check_log",
                 "phase_completion_log")  # fmt: skip
        return {name: raw(self.stage.store, f"SELECT count(*) FROM {name}")[0][0] for name in names}


@pytest.fixture
def yard(store: Store, clock: VirtualClock, tmp_path: Path) -> Yard:
    """Three flows that ended, and nothing shipped."""
    clock.advance(12 * HOUR - 3 * MINUTE)
    made = Yard(Stage(store, clock, nba()), clock, tmp_path / "sink")
    for day in ("2025-11-14", "2025-11-15", "2025-11-16"):
        made.play(day)
    made.settle()
    return made


def test_everything_once(yard: Yard) -> None:
    """Every row of every log is in the sink, once; later rows follow; nothing is shipped again."""
    first = yard.ship()
    found = yard.verify()
    assert found.problems == []
    stored = yard.stored()
    assert min(stored.values()) >= 3
    by_name = {one.relation: one for one in found.logs}
    assert {name: by_name[name].rows for name in stored} == stored
    assert {name: by_name[name].compared for name in stored} == stored
    assert by_name["journal"].sealed_blocks >= 3
    assert by_name["journal"].batches >= 2
    assert first == sum(stored.values())
    assert yard.ship() == 0
    yard.play("2025-11-17")
    yard.clock.advance(DAY)
    yard.settle()
    assert yard.ship() > 0
    assert yard.verify().is_intact
    assert {one.relation: one.rows for one in yard.verify().logs}["journal"] == yard.stored()[
        "journal"
    ]
    status = yard.stage.client.audit_sinks.status(f"parquet:{yard.folder}")
    assert status.backlog == 0
    assert {one.error for one in status.logs} == {None}


POINTS = ("copy", "rename", "renamed", "link", "linked", "position")


@ON_SQLITE
@pytest.mark.parametrize("point", POINTS)
def test_interrupted(yard: Yard, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies at any step leaves nothing lost and nothing doubled."""
    for n in range(3):
        with monkeypatch.context() as patched:
            kill_at(patched, point, calls=n + 1)
            with pytest.raises(Killed):
                yard.ship()
    while yard.ship():
        pass
    found = yard.verify()
    assert found.problems == []
    stored = yard.stored()
    assert {one.relation: one.rows for one in found.logs if one.relation in stored} == stored
    assert found.unlisted_files == (3 if point in ("renamed", "link") else 0)
    yard.clock.advance(400 * DAY)
    fresh = yard.sink()
    fresh._remove_leftovers()
    assert fresh.unlisted() == []
    assert yard.verify().problems == []


def kill_at(patched: pytest.MonkeyPatch, point: str, calls: int) -> None:
    """Make the nth call of a step end the process, before or after it."""
    left = [calls]

    def wrapped(function: Any, *, after: bool) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0]:
                return function(*args, **kwargs)
            if after:
                function(*args, **kwargs)
            raise Killed

        return call

    if point == "copy":
        patched.setattr(ParquetSink, "_copy", wrapped(ParquetSink._copy, after=True))
    elif point in ("rename", "renamed"):
        patched.setattr(Path, "rename", wrapped(Path.rename, after=point == "renamed"))
    elif point in ("link", "linked"):
        patched.setattr(os, "link", wrapped(os.link, after=point == "linked"))
    else:
        patched.setattr(
            "penstock.shipping.shipper.shipment_put", wrapped(positions.shipment_put, after=False)
        )


def test_two_shippers(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two replicas that write the same batch one wins, and both continue."""
    link, gate, errors = os.link, threading.Barrier(2, timeout=30), list[BaseException]()
    met = threading.local()

    def meet(*args: Any) -> None:
        if not getattr(met, "once", False):
            met.once = True
            gate.wait()
        link(*args)

    monkeypatch.setattr(os, "link", meet)

    def ship() -> None:
        try:
            yard.ship()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ship) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    monkeypatch.undo()
    while yard.ship():
        pass
    found = yard.verify()
    assert found.problems == []
    stored = yard.stored()
    assert {one.relation: one.rows for one in found.logs if one.relation in stored} == stored


def test_sink_down(yard: Yard) -> None:
    """A sink that fails delays shipping only; it is an alert until it works again."""
    yard.folder.write_text("a file in the way")
    failed = Shipper(yard.stage.store, yard.sink()).run_once()
    assert failed.error is not None
    yard.play("2025-11-17")
    assert yard.stage.sql("SELECT count(*) FROM history")[0][0] == 8
    alert = "SELECT state, severity FROM alerts WHERE rule = 'audit_sink_failing'"
    assert [tuple(row) for row in yard.stage.sql(alert)] == [("open", "HIGH")]
    status = yard.stage.client.audit_sinks.status(f"parquet:{yard.folder}")
    assert status.backlog > 0
    assert status.logs[0].error is not None
    yard.folder.unlink()
    yard.settle()
    assert yard.ship() > 0
    assert [tuple(row) for row in yard.stage.sql(alert)] == [("resolved", "HIGH")]
    assert yard.verify().is_intact


@ON_SQLITE
def test_another_folder(yard: Yard) -> None:
    """A sink that lost its batches, or has those of another database, is refused; reset helps."""
    yard.ship()
    for path in sorted(yard.folder.rglob("*.json")):
        path.unlink()
    failed = Shipper(yard.stage.store, yard.sink()).run_once()
    assert failed.error is not None
    assert "penstock sink reset" in failed.error
    yard.stage.client.audit_sinks.reset(f"parquet:{yard.folder}")
    assert yard.ship() == sum(yard.stored().values())
    assert yard.verify().is_intact
    yard.stage.client.audit_sinks.reset(f"parquet:{yard.folder}")
    failed = Shipper(yard.stage.store, yard.sink()).run_once()
    assert failed.error is not None
    assert "Another database" in failed.error


def damage(yard: Yard, kind: str) -> None:
    """Change something behind the sink's back."""
    data = sorted((yard.folder / "history").rglob("*.parquet"))
    entries = sorted((yard.folder / "_manifest" / "journal").iterdir())
    if kind == "file removed":
        data[0].unlink()
    elif kind == "file changed":
        data[0].write_bytes(data[0].read_bytes()[:-1] + b"x")
    elif kind == "entry removed":
        entries[0].unlink()
    elif kind == "entry changed":
        changed = json.loads(entries[0].read_bytes())
        entries[0].write_text(json.dumps({**changed, "rows": changed["rows"] - 1}))
    elif kind == "last entry removed":
        entries[-1].unlink()
    elif kind == "row deleted":
        yard.stage.sql("DELETE FROM history WHERE run_id = (SELECT min(run_id) FROM history)")
    else:
        columns = (
            "check_time, customer, pipeline, flow_id, phase, processor, partition, mode,"
            " required_table, kind, completeness_pct, quality_score, check_status, issues,"
            " contributed_to_decision, correlation_id"
        )
        late = (
            f"INSERT INTO dependency_check_log ({columns})"
            f" SELECT {columns} FROM dependency_check_log LIMIT 1"
        )
        yard.stage.sql(late)


@ON_SQLITE
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("file removed", "file_damaged"),
        ("file changed", "file_damaged"),
        ("entry removed", "batch_missing"),
        ("entry changed", "manifest_changed"),
        ("last entry removed", "batch_missing"),
        ("row deleted", "row_lost"),
        ("row added", "row_missing"),
    ],
)
def test_damage(yard: Yard, kind: str, found: str) -> None:
    """Verification names what is missing, doubled or altered."""
    yard.ship()
    assert yard.verify().is_intact
    damage(yard, kind)
    problems = yard.verify()
    assert not problems.is_intact
    assert found in {one.kind for one in problems.problems}


def test_pruned_behind(yard: Yard) -> None:
    """Retention deletes rows only once the sink has them."""
    name = f"parquet:{yard.folder}"
    retention = Retention(
        history_us=HOUR, journal_us=HOUR, logs_us=HOUR, flows_us=HOUR, behind_sink=name
    )
    yard.clock.advance(2 * HOUR)
    before = yard.stored()
    Pruner(yard.stage.store, retention=retention).run_once()
    assert yard.stored() == before
    yard.ship()
    yard.settle()
    yard.ship()
    Pruner(yard.stage.store, retention=retention).run_once()
    after = yard.stored()
    assert after["history"] == after["execution_log"] == after["phase_completion_log"] == 0
    assert yard.verify().problems == []
    assert {one.relation: one.rows for one in yard.verify().logs}["history"] == before["history"]


@pytest.mark.parametrize("engine", [pytest.param("postgres", marks=pytest.mark.postgres)])
def test_late_commit(yard: Yard, engine: str) -> None:
    """A row that commits long after its time is waited for, however much time passes."""
    assert engine == "postgres"
    store: Any = yard.stage.store
    began, done = threading.Event(), threading.Event()

    def slow(tx: Any) -> None:
        tx._connection.execute(
            "INSERT INTO audit (customer, n, at, action, actor, previous, hash)"
            f" VALUES (1, 1, {yard.clock.now()}, 'created', 'me', '', 'h')"
        )
        began.set()
        assert done.wait(60)

    writer = threading.Thread(target=lambda: store.write(slow))
    writer.start()
    assert began.wait(60)
    try:
        for _ in range(3):
            yard.clock.advance(HOUR)
            yard.ship()
        shipped = {one.relation: one.rows for one in yard.verify().logs}
        assert shipped["config_audit"] == 0
    finally:
        done.set()
        writer.join()
    yard.settle()
    yard.ship()
    found = yard.verify()
    assert found.problems == []
    assert {one.relation: one.rows for one in found.logs}["config_audit"] == 1
