"""Preallocation of the write-ahead log: commits use it; crashes and other writers are safe."""

import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.access.store.registry import customer_ensure_many
from penstock.db.sqlite import wal_preallocation
from penstock.db.sqlite.store import SqliteStore

CHUNK_BYTES = wal_preallocation.CHUNK_FRAMES * (wal_preallocation.FRAME_HEADER + 4096)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "a.db", preallocates_wal=True)
    made.migrate()
    yield made
    made.close()


def put(store: SqliteStore, *names: str) -> None:
    """Make one small commit for each name."""
    for name in names:
        store.write(lambda tx, name=name: customer_ensure_many(tx, [name]))  # type: ignore[misc]


def log_size(store: SqliteStore) -> int:
    return Path(f"{store._path}-wal").stat().st_size


def customers(store: SqliteStore) -> set[str]:
    return {row[0] for row in store._writer.execute("SELECT customer_id FROM customers").fetchall()}


def test_commits_rarely_grow_the_log(store: SqliteStore) -> None:
    sizes = []
    for number in range(100):
        put(store, f"c{number}")
        sizes.append(log_size(store))
    grown = [after - before for before, after in itertools.pairwise(sizes)]
    # Every commit adds frames, but rarely grows the file.
    assert sum(1 for more in grown if more) <= 3 * (1 + (sizes[-1] - sizes[0]) // CHUNK_BYTES)
    assert sizes[-1] - sizes[0] >= CHUNK_BYTES


def test_a_crash_leaves_what_was_committed(store: SqliteStore, tmp_path: Path) -> None:
    put(store, *(f"c{number}" for number in range(40)))
    for number in range(40, 400):  # until the log has grown by a chunk that is hardly used
        if not any(Path(f"{store._path}-wal").read_bytes()[-CHUNK_BYTES // 2 :]):
            break
        put(store, f"c{number}")
    else:
        pytest.fail("the end of this log is never preallocated")
    for suffix in ("", "-wal"):  # as they are on disk after a crash
        shutil.copy(f"{store._path}{suffix}", tmp_path / f"b.db{suffix}")
    after = SqliteStore(tmp_path / "b.db", preallocates_wal=True)
    assert customers(after) == customers(store) >= {"c0", "c39"}
    assert after._writer.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    put(after, "later")
    assert "later" in customers(after)
    after.close()


WRITER = """
import itertools, sys
from penstock.access.store.registry import customer_ensure_many
from penstock.db.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1], preallocates_wal=True)
for number in itertools.count():
    store.write(lambda tx: customer_ensure_many(tx, [f"{sys.argv[2]}-{number}"]))
    print(f"{sys.argv[2]}-{number}", flush=True)
"""


def test_killed_writers_lose_no_commit(store: SqliteStore) -> None:
    """Two processes write, this one checkpoints; SIGKILL leaves every acknowledged commit."""
    acknowledged: set[str] = set()
    for step in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(store._path), f"{step}-{name}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("a", "b")
        ]
        for checkpoint in ("PASSIVE", "RESTART", "TRUNCATE"):
            for writer in writers:
                assert writer.stdout is not None
                acknowledged.update(next(writer.stdout).strip() for _ in range(30))
            put(store, f"{step}-{checkpoint}")
            store._writer.execute(f"PRAGMA wal_checkpoint({checkpoint})")  # as far as it gets
        for writer in writers:
            writer.kill()
            assert writer.stdout is not None
            acknowledged.update(line.strip() for line in writer.stdout if line.endswith("\n"))
            writer.stdout.close()
            writer.wait(60)
        assert store._writer.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert acknowledged <= customers(store)


def test_off_by_default(tmp_path: Path) -> None:
    """Without the option, SQLite alone writes to the log."""
    plain = SqliteStore(tmp_path / "plain.db")
    plain.migrate()
    put(plain, *(f"c{number}" for number in range(40)))
    assert any(Path(f"{plain._path}-wal").read_bytes()[-CHUNK_BYTES // 256 :])
    plain.close()


def test_two_writers_share_the_preallocation(store: SqliteStore) -> None:
    other = SqliteStore(store._path, preallocates_wal=True)
    put(other, "first")  # it knows the log's current size
    put(store, *(f"c{number}" for number in range(20)))
    size = log_size(store)
    for number in range(10):
        put(other, f"o{number}")
        put(store, f"s{number}")
    assert log_size(store) == size, "one writer took the other's preallocation for frames"
    assert customers(store) >= {"c19", "o9", "s9"}
    other.close()


def test_a_short_log_is_not_extended(store: SqliteStore) -> None:
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    put(store, "one", "two", "three")
    assert 0 < log_size(store) < wal_preallocation.FRAMES_MIN * 4096


def test_a_missing_log_is_not_an_error(tmp_path: Path) -> None:
    preallocation = wal_preallocation.WalPreallocation(tmp_path / "none.db", 4096, 8_000)
    preallocation.extend()
    preallocation.extend()
    preallocation.close()
    assert list(tmp_path.iterdir()) == [], "a log is SQLite's to make"
