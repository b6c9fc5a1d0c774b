"""`penstock db copy`: from SQLite to PostgreSQL and back, everything, verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.assembly.copying import copy_database
from penstock.assembly.settings import Settings, load
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.client import Client
from penstock.core.errors import Conflict, InvalidInput
from penstock.db.copying import target as copying_target
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.runs.records import Submission
from penstock.services.upkeep import Sealer
from penstock.testing.clock import VirtualClock
from tests.conftest import CLOCK_START
from tests.kits.client_harness import Harness
from tests.kits.dump import raw, tables
from tests.kits.flows import Stage, chain

pytestmark = pytest.mark.postgres
NOT_COPIED = {"schema_migrations", "clusters"}


def settings_of(url: str) -> Settings:
    """Return the settings of a database."""
    return load({}, overrides={"database_url": url})


def fill(store: Store, clock: VirtualClock) -> None:
    """Fill a database: flows, runs, a dead letter, messages, configs, keys, an alert, limits."""
    stage = Stage(store, clock, chain("raw", "predict"))
    stage.open()
    stage.run_off()
    stage.open(partition="2025-11-17")
    stage.kill("raw_job")
    stage.step()
    client = stage.client
    harness = Harness(store, clock)
    harness.config()
    client.topics.create(Topic(name="orders"))
    client.subscriptions.declare(Subscription(name="billing", topic="orders"))
    client.topics.publish("orders", [NewMessage(data=bytes(range(256)), attributes={"ü": '"\\'})])
    client.keys.create("ops", "operator")
    client.limits.declare("crm", capacity=3)
    client.runs.submit(Submission(pipeline="nightly", customer="acme", parameters={"days": 3}))
    Sealer(store, block=7).run_once()


def content(store: Store) -> dict[str, list[Any]]:
    """Return every row of every table in a form that both engines share."""
    found = {}
    for table in tables(store):
        if table in NOT_COPIED:
            continue
        names = sorted(
            row[0]
            for row in raw(
                store,
                f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' "
                "AND table_schema = current_schema()"
                if store.capabilities.engine == "postgres"
                else f"SELECT name FROM pragma_table_info('{table}')",
            )
            if row[0] not in ("cluster", "xid")
        )
        rows = raw(store, f"SELECT {', '.join(names)} FROM {table}")
        shown = [
            tuple(bytes(v) if isinstance(v, memoryview) else int(v) if v is True or v is False
                  else v for v in row)
            for row in rows
        ]  # fmt: skip
        found[table] = sorted(shown, key=repr)
    return found


@pytest.fixture
def clock() -> VirtualClock:
    """The clock of both databases."""
    return VirtualClock(CLOCK_START)


def go_on(store: Store, clock: VirtualClock) -> None:
    """Work on a copy: new ids follow the old ones, and the journal stays intact."""
    client = Client(store)
    before = content(store)
    harness = Harness(store, clock)
    known = {
        row[0] for row in raw(store, "SELECT run_id FROM runs UNION SELECT run_id FROM history")
    }
    harness.submit()
    new = {row[0] for row in raw(store, "SELECT run_id FROM runs")} - known
    assert min(new) > max(known)
    assert harness.take().token > max(
        row[0] for row in raw(store, "SELECT max(token) FROM history")
    )
    client.topics.publish("orders", [NewMessage(data=b"2")])
    Sealer(store, block=5).run_once()
    found = client.views.verify()
    assert found.problems == []
    assert found.entries > len(before["journal"])


def test_there_and_back(pg_dsn: str, clock: VirtualClock, tmp_path: Path) -> None:
    """A SQLite file is copied to PostgreSQL, worked on, copied back and worked on again."""
    first, last = tmp_path / "a.db", tmp_path / "b.db"
    source = SqliteStore(first, clock)
    source.migrate()
    fill(source, clock)
    before = content(source)
    source.close()
    copied = copy_database(settings_of(f"sqlite:{first}"), settings_of(pg_dsn), while_running=True)
    assert (copied.problems, copied.tables["journal"]) == ([], len(before["journal"]))
    middle = PostgresStore(pg_dsn, clock)
    assert content(middle) == before
    assert Client(middle).views.tenant_isolation().stands
    go_on(middle, clock)
    before = content(middle)
    middle.close()
    back = copy_database(settings_of(pg_dsn), settings_of(f"sqlite:{last}"), while_running=True)
    assert back.problems == []
    store = SqliteStore(last, clock)
    after = content(store)
    seals = len(after.pop("seals")) - len(before.pop("seals"))
    assert seals >= 0, "the source is sealed before it is copied"
    # PostgreSQL counts tokens by a sequence, SQLite in this table.
    (after.pop("counters"), before.pop("counters"))
    assert after == before
    go_on(store, clock)
    raw(store, "DROP TRIGGER journal_is_append_only")
    raw(store, "UPDATE journal SET actor = 'eve' WHERE cluster < 0 AND seq = 3")
    assert {one.kind for one in Client(store).views.verify().problems} == {"seal_changed"}
    store.close()


def test_refusals(pg_migrated_dsn: str, clock: VirtualClock, tmp_path: Path) -> None:
    """Not within one engine, not into rows, not under working processes."""
    path = tmp_path / "a.db"
    source = SqliteStore(path, clock)
    source.migrate()
    fill(source, clock)
    source.close()
    here, there = settings_of(f"sqlite:{path}"), settings_of(pg_migrated_dsn)
    with pytest.raises(InvalidInput, match="other engine"):
        copy_database(here, settings_of(f"sqlite:{tmp_path / 'b.db'}"))
    target = PostgresStore(pg_migrated_dsn, clock)
    Harness(target, clock).submit()
    with pytest.raises(Conflict, match="is not empty"):
        copy_database(here, there, while_running=True)
    target.close()


def test_a_failure_leaves_nothing(
    pg_dsn: str, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that fails in the middle can be started again."""
    path = tmp_path / "a.db"
    source = SqliteStore(path, clock)
    source.migrate()
    fill(source, clock)
    source.close()
    here, there = settings_of(f"sqlite:{path}"), settings_of(pg_dsn)
    check = copying_target._check_count

    def fail(table: str, *args: Any) -> None:
        if table == "runs":
            raise Conflict("the connection was lost")
        check(table, *args)

    with monkeypatch.context() as patch:
        patch.setattr(copying_target, "_check_count", fail)
        with pytest.raises(Conflict, match="lost"):
            copy_database(here, there, while_running=True)
    assert copy_database(here, there, while_running=True).problems == []
