"""The audit sink of BigQuery: every row once, whatever is interrupted; verification proves it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock import Submission
from penstock.cli.root import cli
from penstock.client import Client
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.core.errors import InvalidInput
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.probes.bigquery.address import parse_bigquery
from penstock.services.upkeep import Sealer
from penstock.shipping import store as positions
from penstock.shipping.shipper import ShipCounts, Shipper
from penstock.sinks.audit_bigquery import BigQuerySink
from penstock.sinks.audit_bigquery_query import query_bigquery
from penstock.sinks.audit_query import SinkQueryBounds
from penstock.testing.clock import VirtualClock
from tests.gcp.conftest import PROJECT
from tests.gcp.front import Front, Lost, Refusal, no_fault
from tests.kits.client_harness import pipelines
from tests.kits.flows import Stage
from tests.shipping.test_shipper import Killed, Yard, nba

pytestmark = [pytest.mark.gcp, pytest.mark.slow]


@pytest.fixture
def engine() -> str:
    """What a sink does depends on no engine."""
    return "sqlite"


@dataclass
class CloudYard(Yard):
    """A stage, and a dataset to which its logs are shipped."""

    client: Any = None
    dataset: str = ""

    @property
    def name(self) -> str:
        """The sink's name."""
        return f"bigquery:{PROJECT}.{self.dataset}"

    def sink(self) -> BigQuerySink:  # type: ignore[override]
        """A sink as another process would open it."""
        return BigQuerySink(parse_bigquery(self.name, "audit_sink"))

    def pass_once(self) -> ShipCounts:
        """One pass with small batches, in a new process."""
        sink = self.sink()
        try:
            return Shipper(self.stage.store, sink, blocks=4, rows=5).run_once()
        finally:
            sink.close()

    def ship_all(self) -> int:
        """Ship until nothing is left; return the rows."""
        total = 0
        while (done := self.pass_once()).rows or done.error:
            total += done.rows
        return total

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Execute a statement in BigQuery."""
        found = self.client.query(text.format(p=f"{PROJECT}.{self.dataset}")).result()
        return [tuple(row.values()) for row in found]

    def assert_whole(self) -> None:
        """Everything is in BigQuery, once."""
        found = self.verify()
        assert found.problems == []
        assert found.unlisted_files == 0
        stored = self.stored()
        assert {one.relation: one.rows for one in found.logs if one.relation in stored} == stored
        for name, count in stored.items():
            assert self.sql(f"SELECT count(*) FROM `{{p}}.{name}`") == [(count,)]


@pytest.fixture
def yard(store: Store, clock: VirtualClock, tmp_path: Path, client: Any, dataset: str) -> CloudYard:
    """Two flows that ended, and nothing shipped."""
    clock.advance(12 * HOUR - 3 * MINUTE)
    made = CloudYard(
        Stage(store, clock, nba()), clock, tmp_path / "unused", client=client, dataset=dataset
    )
    for day in ("2025-11-15", "2025-11-16"):
        made.play(day)
    made.settle()
    return made


def test_everything_once(yard: CloudYard) -> None:
    """Every row of every log is in BigQuery, once; later rows follow; nothing is shipped again."""
    assert yard.pass_once().rows == sum(yard.stored().values())
    yard.assert_whole()
    assert yard.pass_once() == ShipCounts()
    yard.play("2025-11-17")
    yard.clock.advance(DAY)
    yard.settle()
    assert yard.pass_once().rows > 0
    yard.assert_whole()
    status = yard.stage.client.audit_sinks.status(yard.name)
    assert (status.backlog, {one.error for one in status.logs}) == (0, {None})
    (table,) = [yard.client.get_table(f"{PROJECT}.{yard.dataset}.journal")]
    assert (table.time_partitioning.field, table.clustering_fields) == ("date", ["batch_number"])


def nth(calls: int, fault: Callable[[], Exception], *, of: str) -> Callable[[str, str], None]:
    """Return a hook that fails one request of a method."""
    left = [calls]

    def hook(method: str, _path: str) -> None:
        if method == of:
            left[0] -= 1
            if left[0] == 0:
                raise fault()

    return hook


@pytest.mark.parametrize("point", ["response lost", "not sent", "refused", "position"])
def test_interrupted(
    yard: CloudYard, front: Front, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load whose response was lost, or a process that dies after it, leaves nothing doubled."""
    for number in (1, 3):
        if point == "response lost":
            front.after = nth(number, Lost, of="PUT")
        elif point == "not sent":
            front.before = nth(number, Lost, of="PUT")
        elif point == "refused":
            front.before = nth(
                number, lambda: Refusal(403, "accessDenied", "Access Denied"), of="PUT"
            )
        else:
            with monkeypatch.context() as patched:
                patched.setattr("penstock.shipping.shipper.shipment_put", _killed(number))
                with pytest.raises(Killed):
                    yard.pass_once()
            continue
        yard.pass_once()
        front.before = front.after = no_fault
    yard.ship_all()
    yard.assert_whole()


def _killed(calls: int) -> Callable[..., None]:
    left = [calls]

    def call(*args: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        positions.shipment_put(*args)

    return call


def test_two_shippers(yard: CloudYard, front: Front) -> None:
    """Of two replicas that load the same batch one wins, by the job's id; both continue."""
    gate, met = threading.Barrier(2, timeout=60), list[int]()

    def meet(method: str, _path: str) -> None:
        if method == "PUT" and len(met) < 2:
            met.append(1)
            gate.wait()

    front.before = meet
    done: list[ShipCounts] = []
    threads = [threading.Thread(target=lambda: done.append(yard.pass_once())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 2
    yard.ship_all()
    yard.assert_whole()


def test_a_failed_job(yard: CloudYard, front: Front) -> None:
    """The id of a job that failed is used up: the next attempt has another, and its rows once."""
    load = BigQuerySink._load
    calls = list[str]()

    def broken(self: BigQuerySink, table: Any, data: bytes, job_id: str) -> bool:
        calls.append(job_id)
        return load(self, table, b"{ no JSON" if len(calls) == 1 else data, job_id)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BigQuerySink, "_load", broken)
        failed = yard.pass_once()
    assert failed.error is not None
    assert "load job" in failed.error
    yard.ship_all()
    yard.assert_whole()
    first = calls[0].removesuffix("_1")
    assert {one for one in front.jobs if one.startswith(first)} == {f"{first}_1", f"{first}_2"}


def test_tables_made_again(yard: CloudYard) -> None:
    """Tables that were dropped are refused until a reset; then everything is shipped again."""
    yard.ship_all()
    for name in yard.stored():
        yard.client.delete_table(f"{PROJECT}.{yard.dataset}.{name}")
    failed = yard.pass_once()
    assert "penstock sink reset" in str(failed.error)
    yard.stage.client.audit_sinks.reset(yard.name)
    assert yard.ship_all() == sum(yard.stored().values())
    yard.assert_whole()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM `{p}.history` WHERE batch_entry IS NULL", "rows_changed"),
        ("UPDATE `{p}.history` SET processor = 'x' WHERE batch_number = 1", "rows_changed"),
        ("DELETE FROM `{p}.journal` WHERE batch_number = 1", "batch_missing"),
        ("UPDATE `{p}.journal` SET why = 'x' WHERE batch_number = 1", "rows_changed"),
    ],
)
def test_damage(yard: CloudYard, statement: str, found: str) -> None:
    """Verification names what is missing or altered."""
    yard.ship_all()
    assert yard.verify().is_intact
    yard.sql(statement)
    assert found in {problem.kind for problem in yard.verify().problems}


def test_a_sink_that_is_down(yard: CloudYard, front: Front) -> None:
    """A sink that fails delays shipping only; it is an alert that says why."""

    def refuse(_method: str, _path: str) -> None:
        raise Refusal(403, "accessDenied", "Access Denied: Dataset acme:audit")

    front.before = refuse
    assert "BigQuery denied access" in str(yard.pass_once().error)
    alert = "SELECT state FROM alerts WHERE rule = 'audit_sink_failing'"
    assert [tuple(row) for row in yard.stage.sql(alert)] == [("open",)]
    front.before = no_fault
    yard.ship_all()
    assert [tuple(row) for row in yard.stage.sql(alert)] == [("resolved",)]
    yard.assert_whole()


def test_queries(yard: CloudYard, front: Front) -> None:
    """One SELECT over the sink's tables, bounded in rows and bytes; nothing else."""
    yard.ship_all()
    sink = yard.sink()
    front.tables = [f"{PROJECT}.{yard.dataset}.history"]
    few = SinkQueryBounds(rows_max=1)
    found = query_bigquery(sink, "SELECT processor, date FROM history ORDER BY run_id", few)
    assert (found.columns, len(found.rows), found.is_truncated) == (["processor", "date"], 1, True)
    with pytest.raises(InvalidInput, match="only reading"):
        query_bigquery(sink, "DELETE FROM history WHERE true", few)
    front.estimate = 11_000_000_000
    with pytest.raises(InvalidInput, match="budget of 10,000,000,000"):
        query_bigquery(sink, "SELECT 1 FROM history", few)
    with pytest.raises(InvalidInput, match="budget of 20,000,000"):
        query_bigquery(sink, "SELECT 1 FROM history", SinkQueryBounds(bytes_max=20_000_000))
    front.estimate = 0
    front.tables = ["acme.payroll.salaries"]
    with pytest.raises(InvalidInput, match=r"not acme\.payroll\.salaries"):
        query_bigquery(sink, "SELECT 1 FROM history", few)
    with pytest.raises(InvalidInput, match="BigQuery"):
        query_bigquery(sink, "SELEC 1", few)
    sink.close()


def test_commands(tmp_path: Path, dataset: str, front: Front) -> None:
    """The commands work as with files: ship, status, verify, query."""
    store = SqliteStore(tmp_path / "penstock.db")
    store.migrate()
    client = Client(store)
    client.register(pipelines())
    for _ in range(3):
        client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    Sealer(store).run_once()
    store.close()

    def call(*words: str) -> Result:
        env = {"PENSTOCK_AUDIT_SINK": f"bigquery:{PROJECT}.{dataset}"}
        place = ["--database-url", f"sqlite:///{tmp_path / 'penstock.db'}"]
        return CliRunner().invoke(cli, [*place, *words], env=env)

    assert json.loads(call("sink", "ship", "--json").stdout)["rows"] == 3
    assert json.loads(call("sink", "status", "--json").stdout)["logs"][0]["rows"] == 3
    assert json.loads(call("verify", "--sink", "--json").stdout)["is_intact"]
    found = call("query", "SELECT count(*) AS n FROM journal", "--json")
    assert json.loads(found.stdout)["rows"] == [[3]], found.output
    front.estimate = 30_000_000
    refused = call("query", "SELECT 1 FROM journal", "--max-bytes", "20MB")
    assert refused.exit_code == 2
    assert "30,000,000 bytes" in refused.output
    bad = call("query", "SELECT 1 FROM journal", "--max-bytes", "1MB")
    assert "at least 10MiB" in bad.output
