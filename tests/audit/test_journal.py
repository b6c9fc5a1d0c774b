"""Journal, seals and outbox: written in the transaction they describe, read without gaps."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from penstock.audit.rows import Entry, UnsealedBlock
from penstock.audit.store import journal
from penstock.core.naming import CustomerKey
from penstock.db.store import Store, Tx
from penstock.services.upkeep import Sealer, seal_block
from tests.conftest import OpenStore
from tests.kits.dump import raw
from tests.kits.world import World

T = TypeVar("T")

only_postgres = pytest.mark.parametrize(
    "engine", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)


def entries(n: int, subject: int = 1) -> list[Entry]:
    """Build some entries about a gate."""
    return [Entry("gate", subject, None, f"step{i}", "tester", why=f"w{i}") for i in range(n)]


def append(world: World, n: int, subject: int = 1) -> None:
    """Append entries in one transaction."""
    world.write(lambda tx: journal.journal_append_many(tx, entries(n, subject)))


@contextmanager
def slow_transaction(store: Store, body: Callable[[Tx], object]) -> Iterator[threading.Event]:
    """Run `body` in a transaction that stays open until the block ends or releases it."""
    wrote, let_go = threading.Event(), threading.Event()

    def held_open(tx: Tx) -> None:
        body(tx)
        tx.rows("store_ping")  # queued writes are sent with the next result that is needed
        wrote.set()
        assert let_go.wait(60)

    thread = threading.Thread(target=lambda: store.write(held_open))
    thread.start()
    assert wrote.wait(60)
    try:
        yield let_go
    finally:
        let_go.set()
        thread.join(60)


class TestJournal:
    """Appending and reading."""

    def test_order(self, world: World) -> None:
        """Entries of a subject read back in the order they were appended, oldest first."""
        append(world, 3)
        world.clock.advance(5)
        append(world, 2)
        append(world, 1, subject=2)
        rows = world.read(lambda tx: journal.journal_for(tx, "gate", 1))
        assert [row.action for row in rows] == ["step0", "step1", "step2", "step0", "step1"]
        assert [row.seq for row in rows] == sorted(row.seq for row in rows)
        assert rows[-1].at == world.clock.now()
        assert world.read(lambda tx: journal.journal_for(tx, "run", 1)) == []
        assert len(world.read(lambda tx: journal.journal_for(tx, "gate", 1, limit=2))) == 2

    def test_every_column(self, world: World) -> None:
        """Every column of an entry is stored."""
        entry = Entry(
            "gate", 7, CustomerKey(world.customer), "decided", "ann", "A", "B", 5, "why", '{"x":1}'
        )
        world.write(lambda tx: journal.journal_append_many(tx, [entry]))
        (row,) = world.read(lambda tx: journal.journal_for(tx, "gate", 7))
        assert tuple(row)[2:] == tuple(entry)

    def test_rollback_leaves_nothing(self, world: World) -> None:
        """A transaction that rolls back leaves neither journal entries nor messages behind."""

        def body(tx: Tx) -> None:
            journal.journal_append_many(tx, entries(3))
            journal.outbox_put(tx, "t", {"a": 1})
            raise RuntimeError("no")

        before = world.dump("journal", "outbox")
        with pytest.raises(RuntimeError):
            world.write(body)
        assert world.dump("journal", "outbox") == before


class Overtaken:
    """A store on which another sealer is faster, once, and entries follow."""

    def __init__(self, world: World, other: Store) -> None:
        self._world, self._other = world, other
        self._is_first = True

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` on the store."""
        return self._world.store.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` on the store, the first time after another sealer."""
        if self._is_first:
            self._is_first = False
            assert seal_block(self._other, 100) == 3
            append(self._world, 2)
        return self._world.store.write(body)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake processes."""
        self._world.store.wake(channels)


def unsealed(world: World) -> UnsealedBlock:
    """Read the next block without sealing it."""
    block = world.read(lambda tx: journal.seal_read(tx, 100))
    assert block is not None
    return block


class TestSeals:
    """Sealing in blocks, and what verification detects."""

    def seal(self, world: World, n: int = 100) -> int:
        """Seal the next block."""
        return seal_block(world.store, n)

    def verify(self, world: World) -> tuple[int, int, str | None]:
        """Recompute every seal in a read transaction."""
        return world.read(journal.seals_verify)

    def tamper(self, world: World, text: str) -> None:
        """Change the journal with its protection disabled."""
        if world.store.capabilities.engine == "postgres":
            world.sql("ALTER TABLE journal DISABLE TRIGGER USER")
        else:
            world.sql("DROP TRIGGER journal_is_append_only")
        world.sql(text)

    def sealed(self, world: World, blocks: int = 3, size: int = 4) -> None:
        """Create a journal of some sealed blocks and unsealed entries."""
        for block in range(blocks):
            append(world, size, subject=block)
            assert self.seal(world) == size
        append(world, 2, subject=99)

    def test_blocks(self, world: World) -> None:
        """Blocks take entries in order, at most as many as requested, and chain to each other."""
        assert self.seal(world) == 0
        assert self.verify(world) == (0, 0, None)
        append(world, 10)
        assert [self.seal(world, 4) for _ in range(4)] == [4, 4, 2, 0]
        blocks, count, problem = self.verify(world)
        assert (blocks, count, problem) == (3, 10, None)
        heads = world.sql("SELECT previous, head FROM seals ORDER BY block")
        assert heads[0][0] == ""
        assert [previous for previous, _ in heads[1:]] == [head for _, head in heads[:-1]]

    def test_unsealed_entries_are_valid(self, world: World) -> None:
        """Entries not sealed yet are not reported as a problem."""
        self.sealed(world)
        assert self.verify(world) == (3, 12, None)

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE journal SET actor = 'eve' WHERE action = 'step0' AND subject = 1",
            "UPDATE journal SET at = at + 1 WHERE subject = 2 AND action = 'step3'",
            "UPDATE journal SET detail = '' WHERE subject = 0 AND action = 'step1'",
            "DELETE FROM journal WHERE subject = 1 AND action = 'step2'",
            "DELETE FROM journal WHERE subject = 2",
            "DELETE FROM seals WHERE block = (SELECT min(block) FROM seals)",
            "DELETE FROM seals WHERE block = (SELECT min(block) + 1 FROM seals)",
            "UPDATE seals SET root = 'x' WHERE block = (SELECT max(block) FROM seals)",
            "UPDATE seals SET head = 'x' WHERE block = (SELECT min(block) FROM seals)",
            "UPDATE seals SET entries = entries - 1",
        ],
    )
    def test_tampering_is_detected(self, world: World, change: str) -> None:
        """A changed or removed entry or seal is detected."""
        self.sealed(world)
        self.tamper(world, change)
        _, _, problem = self.verify(world)
        assert problem is not None
        assert problem.startswith("block ")

    @only_postgres
    def test_inserted_entry_is_detected(self, world: World) -> None:
        """An entry inserted among sealed ones is detected (SQLite has no free number there)."""
        self.sealed(world)
        columns = "at, kind, subject, customer, action, actor"
        world.sql(
            f"INSERT INTO journal (seq, xid, {columns}) SELECT 0, xid, {columns} "
            "FROM journal WHERE subject = 1 AND action = 'step0'"
        )
        assert self.verify(world)[2] is not None

    def test_sealing_continues_after_rollback(self, world: World) -> None:
        """A sealer that fails leaves no partial block; the next one seals the same entries."""
        append(world, 3)
        block = unsealed(world)

        def body(tx: Tx) -> None:
            assert journal.seal_write(tx, block) == 3
            raise RuntimeError("crash")

        with pytest.raises(RuntimeError):
            world.write(body)
        assert self.seal(world) == 3
        assert self.verify(world)[1:] == (3, None)

    @only_postgres
    def test_slow_transactions_are_not_skipped(self, world: World, open_store: OpenStore) -> None:
        """Entries of a transaction that commits late are sealed later, never skipped."""
        append(world, 2)
        with slow_transaction(
            open_store(), lambda tx: journal.journal_append_many(tx, entries(3, subject=5))
        ):
            append(world, 4, subject=6)
            assert self.seal(world) == 2
            assert self.seal(world) == 0
        assert self.seal(world) == 7
        assert self.verify(world)[1:] == (9, None)

    @only_postgres
    def test_one_sealer_at_a_time(self, world: World, open_store: OpenStore) -> None:
        """A second sealer does not wait and seals nothing."""
        append(world, 3)
        block = unsealed(world)
        with slow_transaction(open_store(), lambda tx: journal.seal_write(tx, block)):
            assert self.seal(world) == 0
        assert self.verify(world)[1:] == (3, None)

    def test_block_sealed_by_another_process(self, world: World) -> None:
        """A block that was read before another sealer's block is not written."""
        append(world, 3)
        early = unsealed(world)
        append(world, 2)
        assert self.seal(world) == 5
        assert world.write(lambda tx: journal.seal_write(tx, early)) is None
        assert self.seal(world) == 0
        assert self.verify(world) == (1, 5, None)

    def test_entries_lost_in_a_crash(self, world: World) -> None:
        """A block whose last entries were lost after it was read is not written, but read again."""
        append(world, 3)
        early = unsealed(world)
        raw(world.store, "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)")
        assert world.write(lambda tx: journal.seal_write(tx, early)) is None
        assert self.seal(world) == 2
        assert self.verify(world) == (1, 2, None)

    def test_sealer_that_is_overtaken_continues(self, world: World, open_store: OpenStore) -> None:
        """A sealer whose block another one sealed first seals the entries after it."""
        append(world, 3)

        assert Sealer(Overtaken(world, open_store())).run_once().entries == 2
        assert self.verify(world) == (2, 5, None)


class TestOutbox:
    """Messages that are sent with a transaction."""

    def take(self, world: World, n: int = 100) -> list[int]:
        """Take messages. Return their payloads."""
        messages = world.write(lambda tx: journal.outbox_take(tx, n))
        return [json.loads(message.payload) for message in messages]

    def put(self, world: World, *payloads: int) -> None:
        """Put messages in one transaction."""

        def body(tx: Tx) -> None:
            for payload in payloads:
                journal.outbox_put(tx, "t", payload, "k")

        world.write(body)

    def test_in_order_and_once(self, world: World) -> None:
        """Messages are taken in order, at most as many as requested, each once."""
        self.put(world, *range(7))
        assert world.read(journal.outbox_count) == (7, world.clock.now())
        assert [self.take(world, 3) for _ in range(4)] == [[0, 1, 2], [3, 4, 5], [6], []]
        assert world.read(journal.outbox_count) == (0, None)

    def test_message(self, world: World) -> None:
        """A message carries topic, key, payload and time."""
        payload = {"a": [1, "ü", None]}
        world.write(lambda tx: journal.outbox_put(tx, "topic", payload, "key"))
        (message,) = world.write(lambda tx: journal.outbox_take(tx, 1))
        assert (message.topic, message.ordering_key) == ("topic", "key")
        assert json.loads(message.payload) == payload
        assert message.created_at == world.clock.now()

    def test_failed_publisher_loses_nothing(self, world: World) -> None:
        """Messages of a publisher that fails are taken by the next."""
        self.put(world, 1, 2)

        def body(tx: Tx) -> None:
            assert len(journal.outbox_take(tx, 10)) == 2
            raise RuntimeError("crash")

        with pytest.raises(RuntimeError):
            world.write(body)
        assert self.take(world) == [1, 2]

    @only_postgres
    def test_slow_transaction_is_not_missed(self, world: World, open_store: OpenStore) -> None:
        """A message with a lower id that commits later is still taken."""
        with slow_transaction(open_store(), lambda tx: journal.outbox_put(tx, "t", 1)):
            self.put(world, 2, 3)
            assert self.take(world) == [2, 3]
        assert self.take(world) == [1]

    @only_postgres
    def test_two_publishers(self, world: World, open_store: OpenStore) -> None:
        """A second publisher neither waits for nor gets messages that the first holds."""
        self.put(world, *range(6))
        with slow_transaction(open_store(), lambda tx: journal.outbox_take(tx, 4)):
            assert self.take(world) == [4, 5]
        assert self.take(world) == []

    def test_racing_publishers(self, world: World, open_store: OpenStore) -> None:
        """Publishers racing over 300 messages get each of them once."""
        self.put(world, *range(300))
        worlds = [World(open_store(), world.clock) for _ in range(3)]
        got: list[int] = []
        errors: list[BaseException] = []

        def race(one: World) -> None:
            try:
                while one.read(journal.outbox_count)[0]:
                    got.extend(self.take(one, 7))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=race, args=(one,)) for one in worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert sorted(got) == list(range(300))
