"""`verify` finds every kind of tampering and of engine bug, and nothing in an honest history."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import connect
from penstock.assembly.heads_file import HeadsFile
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.clock import HOUR, MINUTE, WEEK
from penstock.core.errors import Forbidden, InvalidInput
from penstock.core.records.record import to_json_value
from penstock.db.store import Store
from penstock.monitoring.verify.accounts import compare_heads
from penstock.monitoring.verify.records import Verification
from penstock.services.store import Retention, prune
from penstock.services.upkeep import OutboxPublisher, Sealer, seal_block
from penstock.testing.clock import VirtualClock
from tests.kits.configs import create_config
from tests.kits.flows import Stage, chain
from tests.kits.shell import Shell

GUARDS = {"journal": "journal_is_append_only", "history": "history_is_final"}


class Scene:
    """A history of runs, flows, configs and dead letters, sealed in blocks of ten."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.stage = Stage(store, clock, chain("raw", "predict"))
        self.flow = self.stage.open()
        self.stage.run_off()
        self.failed = self.stage.open(partition="2025-11-17")
        self.stage.kill("raw_job")
        self.stage.step()
        self.waiting = self.stage.open(partition="2025-11-18")
        clock.advance(MINUTE)
        self.seal()

    def seal(self) -> None:
        """Seal what is not sealed."""
        while seal_block(self.store, 10):
            pass

    def verify(self) -> Verification:
        """Verify as an operator does."""
        return self.stage.client.views.verify()

    @contextmanager
    def changed(self, text: str) -> Iterator[None]:
        """Change rows of one table, and restore them afterwards."""
        match = re.match(r"(?:UPDATE|DELETE FROM|INSERT INTO) (\w+)", text)
        assert match is not None, text
        table = match[1]
        self.stage.sql(f"CREATE TABLE kept AS SELECT * FROM {table}")
        self.tamper(text)
        yield
        is_postgres = self.store.capabilities.engine == "postgres"
        rows = "OVERRIDING SYSTEM VALUE SELECT" if is_postgres else "SELECT"

        def body(tx: Any) -> None:
            run = tx._connection.execute
            unbound = "SET LOCAL session_replication_role = replica"
            run(unbound if is_postgres else "PRAGMA defer_foreign_keys = ON")
            run(f"DELETE FROM {table}")
            run(f"INSERT INTO {table} {rows} * FROM kept")
            run("DROP TABLE kept")

        self.store.write(body)

    def tamper(self, text: str) -> None:
        """Change rows with their protection disabled."""
        for table, guard in GUARDS.items():
            if self.store.capabilities.engine == "postgres":
                self.stage.sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            else:
                self.stage.sql(f"DROP TRIGGER IF EXISTS {guard}")
        self.stage.sql(text)


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    """A verified history."""
    made = Scene(store, clock)
    found = made.verify()
    assert (found.is_intact, found.problems) == (True, [])
    assert (found.runs, found.flows, found.unsealed) == (3, 3, 0)
    assert found.blocks >= 2
    return made


def first(action: str, kind: str = "run") -> str:
    """Select the first entry of a kind."""
    return f"(SELECT min(seq) FROM journal WHERE kind = '{kind}' AND action = '{action}')"


COPY = (
    "INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, token, "
    "why, detail) SELECT at, kind, subject, customer, action, actor, from_state, to_state, token, "
    "why, detail FROM journal WHERE seq = {}"
)
COLUMNS = {
    "at": "at + 1",
    "kind": "'limit'",
    "subject": "subject + 1000",
    "customer": "99",
    "action": "'created'",
    "actor": "'eve'",
    "from_state": "'PENDING'",
    "to_state": "'FAILED'",
    "token": "token + 1",
    "why": "'nothing to see'",
    "detail": "'{}'",
}
TAMPERING: dict[str, tuple[str, str]] = {
    "an entry removed": (f"DELETE FROM journal WHERE seq = {first('created')}", "seal_changed"),
    "the order of entries": (
        f"UPDATE journal SET seq = 100000 WHERE seq = {first('created')}",
        "seal_changed",
    ),
    "a block's root": ("UPDATE seals SET root = 'x' WHERE block = 1", "seal_changed"),
    "a block's count": ("UPDATE seals SET entries = entries + 1 WHERE block = 1", "seal_changed"),
    "a block's head": ("UPDATE seals SET head = 'x' WHERE block = 1", "seal_changed"),
    "a block removed": ("DELETE FROM seals WHERE block = 1", "seal_changed"),
    "a block's first entry": (
        "UPDATE seals SET from_seq = from_seq + 1 WHERE block = 1",
        "seal_changed",
    ),
    "a block's last entry": (
        "UPDATE seals SET to_seq = to_seq + 1 WHERE block = 1",
        "seal_changed",
    ),
    "a block's time": ("UPDATE seals SET sealed_at = 1 WHERE block = 2", "seal_changed"),
    "a block's version": ("UPDATE seals SET version = 1 WHERE block = 2", "seal_changed"),
    "what retention removed": (
        "INSERT INTO counters (name, value) VALUES ('journal_pruned_to', 9000000000000000)",
        "retention_changed",
    ),
    "an audit entry changed": ("UPDATE audit SET actor = 'eve'", "audit_changed"),
    "an audit entry removed": ("DELETE FROM audit WHERE n = 1", "audit_changed"),
    "an audit chain with its head": (
        "UPDATE customers SET audit_n = 0, audit_head = ''",
        "audit_changed",
    ),
    "history changed": (
        "UPDATE history SET final_state = 'FAILED' WHERE final_state = 'COMPLETED'",
        "history_changed",
    ),
    "a token in history": ("UPDATE history SET token = token + 1", "history_changed"),
    "history removed": (
        "DELETE FROM history WHERE final_state = 'COMPLETED'",
        "end_without_history",
    ),
    "a flow's state": (
        "UPDATE flows SET ended_at = NULL, state = 'IN_PROGRESS' WHERE state = 'COMPLETE'",
        "flow_state",
    ),
}
BUGS: dict[str, tuple[str, str]] = {
    "a run disappears": ("DELETE FROM runs", "run_lost"),
    "a run ends twice": (COPY.format(first("ended")), "run_ended_twice"),
    "a run is created twice": (
        COPY.format(
            "(SELECT min(seq) FROM journal WHERE kind = 'run' AND action = 'created' "
            "AND subject IN (SELECT run_id FROM runs))"
        ),
        "run_created_twice",
    ),
    "a phase starts twice": (
        COPY.format(
            "(SELECT min(seq) FROM journal WHERE kind = 'flow' AND action = 'triggered' "
            "AND subject = (SELECT max(flow_id) FROM flows))"
        ),
        "started_twice",
    ),
    "a phase starts without an entry": (
        "INSERT INTO triggers (flow_id, phase, processor, customer, at, verdict, source, runs) "
        "SELECT max(flow_id), 'predict', '', max(customer), 0, 'PROCEED', 'cascade', 1 FROM flows",
        "start_without_entry",
    ),
    "a start is forgotten": (
        "DELETE FROM triggers WHERE phase = 'predict'",
        "entry_without_start",
    ),
    "a dead run has no dead letter": ("DELETE FROM dead_letters", "dead_letter_missing"),
    "an end without a creation": (
        "INSERT INTO journal (at, kind, subject, action, actor, to_state, token) "
        "SELECT max(at), 'run', 77777, 'ended', 'eve', 'COMPLETED', 1 FROM journal",
        "end_without_creation",
    ),
    "a run is created again after its end": (
        COPY.format(
            "(SELECT min(seq) FROM journal WHERE kind = 'run' AND action = 'created' "
            "AND subject IN (SELECT run_id FROM history))"
        ),
        "run_created_twice",
    ),
    "a completion is lost": ("DELETE FROM completions", "completion_missing"),
    "a run ended but is live": (
        "INSERT INTO journal (at, kind, subject, action, actor, to_state, token) "
        "SELECT max(j.at), 'run', max(r.run_id), 'ended', 'x', 'COMPLETED', 1 "
        "FROM journal j, runs r",
        "run_state",
    ),
}


@pytest.mark.parametrize("group", ["columns", "tampering", "bugs"])
def test_found(scene: Scene, group: str) -> None:
    """Each change is reported by its kind; without it everything is intact again."""
    ended = f"seq = {first('ended')}"
    groups = {
        "columns": {
            name: (f"UPDATE journal SET {name} = {value} WHERE {ended}", "seal_changed")
            for name, value in COLUMNS.items()
        },
        "tampering": TAMPERING,
        "bugs": BUGS,
    }
    create_config(
        scene.stage.client, "acme", {"pipeline_template": "nba", "schedule_interval_minutes": 60}
    )
    scene.seal()
    for name, (text, kind) in groups[group].items():
        with scene.changed(text):
            found = scene.verify()
            assert not found.is_intact, name
            assert kind in {one.kind for one in found.problems}, (name, found.problems)
            assert found.problem_count >= len(found.problems)
    assert scene.verify().problems == []


def test_history_without_an_end(scene: Scene) -> None:
    """A run that was added to history, or whose end was removed with its seals, is found."""
    scene.tamper(
        "DELETE FROM journal WHERE kind = 'run' AND action = 'ended' AND to_state = 'COMPLETED'"
    )
    scene.tamper("DELETE FROM seals")
    scene.seal()
    kinds = {one.kind for one in scene.verify().problems}
    assert {"history_without_end", "run_lost"} <= kinds


def test_audit_chain(scene: Scene) -> None:
    """A changed entry of a customer's audit chain is found."""
    stage = scene.stage
    create_config(
        stage.client, "acme", {"pipeline_template": "nba", "schedule_interval_minutes": 60}
    )
    assert scene.verify().audit_entries == 1
    scene.tamper("UPDATE audit SET actor = 'eve'")
    (problem,) = scene.verify().problems
    assert (problem.kind, "acme" in problem.text) == ("audit_changed", True)


def test_fired_twice(scene: Scene) -> None:
    """Two first attempts of one occurrence are found."""
    for number in (1, 2):
        scene.tamper(
            "INSERT INTO history (run_id, customer, config_id, processor, slot, scheduled_time, "
            "priority, created_at, finished_at, final_state, token, attempt, lapses, was_retried, "
            f"is_dead, trigger_source) VALUES ({9000 + number}, 1, 5, 1, 7, 7, 5, 7, 7, "
            "'COMPLETED', 1, 1, 0, FALSE, FALSE, 'scheduler')"
        )
    assert "fired_twice" in {one.kind for one in scene.verify().problems}


def test_a_message_without_a_disposition(store: Store, clock: VirtualClock) -> None:
    """A delivery that disappeared is found: the message neither waits nor was settled."""
    stage = Stage(store, clock, chain("raw"))
    stage.client.topics.create(Topic(name="orders"))
    stage.client.subscriptions.declare(Subscription(name="billing", topic="orders"))
    clock.advance(HOUR)
    stage.client.topics.publish("orders", [NewMessage(data=b"1")])
    assert stage.client.views.verify().problems == []
    stage.sql("DELETE FROM deliveries")
    (problem,) = stage.client.views.verify().problems
    assert (problem.kind, problem.subject) == ("delivery_missing", "subscription billing")


def test_older_blocks_are_kept(scene: Scene, clock: VirtualClock) -> None:
    """A block without entries after a complete one was not removed by retention."""
    clock.advance(WEEK)
    scene.stage.run_off()
    scene.seal()
    clock.advance(WEEK)
    scene.tamper("DELETE FROM journal WHERE seq > (SELECT min(to_seq) FROM seals)")
    scene.tamper(
        f"INSERT INTO counters (name, value) VALUES ('journal_pruned_to', {clock.now() - HOUR})"
    )
    texts = {one.text for one in scene.verify().problems}
    assert "entries are missing, although older ones are kept" in texts


def test_unsealed_entries(scene: Scene) -> None:
    """Entries that are not sealed yet are checked for what they say, and counted."""
    scene.stage.run_off()
    found = scene.verify()
    assert found.is_intact
    assert found.unsealed > 0


def test_after_retention(scene: Scene, clock: VirtualClock) -> None:
    """What retention removed is not missed."""
    clock.advance(10 * WEEK)
    scene.stage.run_off()
    scene.seal()
    scene.store.write(lambda tx: prune(tx, Retention(history_us=WEEK, journal_us=WEEK)))
    found = scene.verify()
    assert found.problems == []


def test_published_heads(scene: Scene) -> None:
    """A rewritten journal whose seals were recomputed differs from published heads."""
    views = scene.stage.client.views
    page = views.seals(limit=1)
    assert page.next_cursor is not None
    blocks = [*page.items, *views.seals(limit=100, cursor=page.next_cursor).items]
    published = {one.block: one.head for one in blocks}
    newest = views.seals(sort="newest", limit=1)
    rest = views.seals(sort="newest", limit=100, cursor=newest.next_cursor)
    assert [*newest.items, *rest.items] == blocks[::-1]
    with pytest.raises(InvalidInput):
        views.seals(limit=1, cursor=newest.next_cursor)
    assert compare_heads(published, published) == []
    scene.tamper("UPDATE journal SET actor = 'eve'")
    scene.tamper("DELETE FROM seals")
    scene.seal()
    assert scene.verify().is_intact, "nothing in the database shows it"
    stored = {one.block: one.head for one in views.seals(limit=100).items}
    assert {one.kind for one in compare_heads(published, stored)} == {"head_changed"}
    assert len(compare_heads(published, {})) == len(published)


def test_heads_on_a_topic(scene: Scene, clock: VirtualClock) -> None:
    """Every further head is published to those who subscribe to `penstock.seal-heads`."""
    client = scene.stage.client
    client.subscriptions.declare(Subscription(name="vault", topic="penstock.seal-heads"))
    clock.advance(MINUTE)
    scene.stage.run_off()
    known = client.views.seals(limit=100).items
    scene.seal()
    OutboxPublisher(scene.store).run_once()
    sent = [
        json.loads(one.message.data) for one in client.subscriptions.pull("vault", max_messages=50)
    ]
    new = client.views.seals(limit=100).items[len(known) :]
    assert sent == [to_json_value(one) for one in new] != []


def test_heads_in_a_file(scene: Scene, tmp_path: Path) -> None:
    """The sealer appends what the file lacks, also after a crash in the middle of a line."""
    path = tmp_path / "heads.jsonl"
    heads = HeadsFile(path)
    sealer = Sealer(scene.store, block=10, heads=heads)
    sealer.run_once()
    listed = scene.stage.client.views.seals(limit=100).items
    assert heads.last_block() == listed[-1].block
    path.write_bytes(path.read_bytes()[:-20])
    assert heads.last_block() == listed[-2].block
    sealer.run_once()
    sealer.run_once()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [to_json_value(one) for one in listed]
    assert path.stat().st_mode & 0o777 == 0o600


def test_customers_see_nothing_of_it(scene: Scene) -> None:
    """A client of one customer may not verify the journal of all."""
    bound = scene.stage.client.scoped("acme")
    for call in (bound.views.verify, bound.views.seals):
        with pytest.raises(Forbidden):
            call()


class TestCommand:
    """`penstock verify` and `penstock seals`."""

    @pytest.fixture
    def engine(self) -> str:
        """The shell has a SQLite database."""
        return "sqlite"

    def test_text_and_json(self, shell: Shell, tmp_path: Path) -> None:
        """The result says what was checked; published heads are compared."""
        shell.submit()
        with connect(shell.url) as client:
            seal_block(client.store, 100)
        assert "Intact: nothing was lost, repeated or changed." in shell.ok("verify")
        heads = tmp_path / "heads.json"
        heads.write_text(shell.ok("seals", "list", "--json"))
        record = shell.json("verify", "--heads", str(heads))
        assert (record["is_intact"], record["heads"]) == (True, 1)
        listed: dict[str, Any] = json.loads(heads.read_text())
        listed["items"][0]["head"] = "0" * 64
        heads.write_text(json.dumps(listed))
        result = shell("verify", "--heads", str(heads))
        assert result.code == 1
        assert "the journal was rewritten" in result.out
        assert listed["items"][0]["head"] not in shell.ok("seals", "list")

    def test_published(self, shell: Shell, tmp_path: Path) -> None:
        """Heads are appended to a file once; messages that were pushed can be compared, too."""
        shell.submit()
        with connect(shell.url) as client:
            seal_block(client.store, 1)
        path = tmp_path / "heads.jsonl"
        assert "1 head appended" in shell.ok("seals", "publish", str(path))
        shell.submit()
        with connect(shell.url) as client:
            seal_block(client.store, 100)
        assert shell.json("seals", "publish", str(path))["published"] == 1
        assert shell.json("seals", "publish", str(path))["published"] == 0
        assert shell.json("verify", "--heads", str(path))["heads"] == 2
        data = b64encode(path.read_bytes().splitlines()[0]).decode()
        path.write_text(json.dumps({"message": {"data": data}, "subscription": "vault"}) + "\n")
        assert shell.json("verify", "--heads", str(path))["heads"] == 1
        path.write_text('{"block": 1, "head": "a"}\n{"block": 1, "head": "b"}\n')
        assert "two different heads for block 1" in shell("verify", "--heads", str(path)).err

    def test_bad_heads(self, shell: Shell, tmp_path: Path) -> None:
        """A file of another form is refused before anything is checked."""
        heads = tmp_path / "heads.json"
        heads.write_text("[1]")
        result = shell("verify", "--heads", str(heads))
        assert result.code == 2
        assert "penstock seals publish" in result.err
