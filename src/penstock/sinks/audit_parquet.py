"""Audit sink of Parquet files, partitioned by date and written by DuckDB.

    journal/date=2025-11-17/000000000012-9f3c….parquet
    _manifest/journal/000000000012.json

Files are written under a temporary name, flushed to disk and renamed; the manifest entry comes last
and is linked into place, which fails if it exists. Only one of two writers therefore succeeds, and
a file without an entry is never read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.clock import DAY, HOUR, SECOND, Clock, Micros, SystemClock, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import new_secret
from penstock.shipping.batches import (
    LogBatch,
    ManifestEntry,
    ShippedRow,
    SinkConflict,
    SinkUnavailable,
    StoredFile,
)
from penstock.shipping.tables import TABLES, ShippedTable

TYPES: Final = {
    "text": "VARCHAR",
    "integer": "BIGINT",
    "float": "DOUBLE",
    "boolean": "BOOLEAN",
    "time": "BIGINT",
}
LEFTOVER_AFTER: Final = HOUR
"""Age at which a file of an interrupted batch is removed."""
_MANIFEST: Final = "_manifest"
_TEMPORARY: Final = "_tmp"


def load_duckdb() -> Any:
    """Import the optional package; raise InvalidInput that names the extra if it is missing."""
    try:
        # Imported here because it is optional.
        import duckdb
    except ModuleNotFoundError:
        fix = "Install it: pip install 'penstock-engine[duckdb]'."
        raise InvalidInput("audit_sink", "the package duckdb", "not installed", fix) from None
    return duckdb


class ParquetSink:
    """A folder of Parquet files and their manifest."""

    interval_us: Micros = 0
    blocks_max = 20

    def __init__(self, root: Path, *, clock: Clock | None = None) -> None:
        """Use a folder; it is created when the first batch is written."""
        self.root = root
        self.name = f"parquet:{root}"
        self._clock = clock or SystemClock()
        self._connection: Any = None
        self._is_clean = False

    def last(self, relation: str) -> ManifestEntry | None:
        """Return the newest entry of a log; None if it has none."""
        numbers = self._numbers(relation)
        return self._entry(relation, numbers[-1]) if numbers else None

    def entries(self, relation: str) -> Iterator[ManifestEntry]:
        """Yield all entries of a log in order."""
        for number in self._numbers(relation):
            yield self._entry(relation, number)

    def write(self, batch: LogBatch) -> ManifestEntry:
        """Store a batch durably, then its entry. Raise SinkConflict if its number is taken."""
        if not self._is_clean:
            self._remove_leftovers()
            self._is_clean = True
        folder = self._manifest(batch.table.name)
        target = folder / f"{batch.number:012d}.json"
        if target.exists():
            raise SinkConflict(str(target))
        files = [self._write_file(batch, day, rows) for day, rows in sorted(_by_day(batch).items())]
        entry = batch.entry(files)
        temporary = self._temporary(".json")
        _write_durably(temporary, msgspec.json.format(msgspec.json.encode(entry)))
        try:
            os.link(temporary, target)
        except FileExistsError:
            for file in files:
                (self.root / file.path).unlink(missing_ok=True)
            raise SinkConflict(str(target)) from None
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(folder)
        return entry

    def rows(self, table: ShippedTable, entry: ManifestEntry) -> list[tuple[Any, ...]]:
        """Return the rows of a batch in the order of their keys; raise ValueError if damaged."""
        for file in entry.files:
            path = self.root / file.path
            if not path.is_file():
                raise ValueError(f"{file.path} is missing")
            if _sha256(path) != file.sha256:
                raise ValueError(f"{file.path} was changed")
        if not entry.files:
            return []
        names = ", ".join(
            f'epoch_us("{name}")' if form == "time" else f'"{name}"' for name, form in table.columns
        )
        paths = ", ".join(_quoted(self.root / file.path) for file in entry.files)
        keys = ", ".join(f'"{name}"' for name in table.key)
        text = (
            f"SELECT {names} FROM read_parquet([{paths}], hive_partitioning = false) "
            f"ORDER BY {keys}"
        )
        found: list[tuple[Any, ...]] = self._duckdb().execute(text).fetchall()
        return found

    def paths(self, relation: str) -> list[Path]:
        """Return the files to read for a log."""
        return [self.root / file.path for one in self.entries(relation) for file in one.files]

    def unlisted(self) -> list[str]:
        """Return data files that no manifest lists, such as those of interrupted batches."""
        listed = {path for table in TABLES for path in self.paths(table.name)}
        return sorted(
            str(path.relative_to(self.root))
            for table in TABLES
            for path in (self.root / table.name).glob("date=*/*.parquet")
            if path not in listed
        )

    def close(self) -> None:
        """Close the connection to DuckDB."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write_file(self, batch: LogBatch, day: str, rows: Sequence[ShippedRow]) -> StoredFile:
        table = batch.table
        source, made = self._temporary(".ndjson"), self._temporary(".parquet")
        names = [name for name, _ in table.columns]
        shape = msgspec.defstruct("Shape", [(name, Any) for name in names])
        encode = msgspec.json.Encoder().encode
        try:
            source.write_bytes(b"\n".join([encode(shape(*row)) for row in rows]))
            self._copy(table, source, made)
            _sync_file(made)
            folder = self.root / table.name / f"date={day}"
            _make_folder(folder)
            target = folder / f"{batch.number:012d}-{new_secret()[:12]}.parquet"
            stored = StoredFile(
                path=str(target.relative_to(self.root)),
                rows=len(rows),
                bytes=made.stat().st_size,
                sha256=_sha256(made),
            )
            made.rename(target)
            _sync_folder(folder)
        finally:
            source.unlink(missing_ok=True)
            made.unlink(missing_ok=True)
        return stored

    def _copy(self, table: ShippedTable, source: Path, target: Path) -> None:
        """Write rows as Parquet, in the order of the source."""
        types = ", ".join(f"'{name}': '{TYPES[form]}'" for name, form in table.columns)
        names = ", ".join(
            f'make_timestamp("{name}") AS "{name}"' if form == "time" else f'"{name}"'
            for name, form in table.columns
        )
        duckdb = load_duckdb()
        try:
            self._duckdb().execute(
                f"COPY (SELECT {names} FROM read_json({_quoted(source)}, "
                f"format = 'newline_delimited', columns = {{{types}}}, "
                f"maximum_object_size = 268435456)) "
                f"TO {_quoted(target)} (FORMAT parquet, COMPRESSION zstd)"
            )
        except duckdb.Error as error:
            raise SinkUnavailable(f"DuckDB cannot write {target.name}: {error}") from error

    def _duckdb(self) -> Any:
        if self._connection is None:
            duckdb = load_duckdb()
            config = {"threads": 1, "preserve_insertion_order": True}
            self._connection = duckdb.connect(":memory:", config=config)
        return self._connection

    def _manifest(self, relation: str) -> Path:
        folder = self.root / _MANIFEST / relation
        _make_folder(folder)
        return folder

    def _numbers(self, relation: str) -> list[int]:
        folder = self.root / _MANIFEST / relation
        try:
            names = [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(name[:-5]) for name in names if name.endswith(".json"))

    def _entry(self, relation: str, number: int) -> ManifestEntry:
        path = self.root / _MANIFEST / relation / f"{number:012d}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=ManifestEntry)
        except msgspec.DecodeError as error:
            raise SinkUnavailable(f"{path} is not a manifest entry: {error}") from None

    def _temporary(self, suffix: str) -> Path:
        folder = self.root / _TEMPORARY
        _make_folder(folder)
        return folder / f"{new_secret()[:16]}{suffix}"

    def _remove_leftovers(self) -> None:
        """Remove files of batches that were interrupted long ago."""
        before = (self._clock.now() - LEFTOVER_AFTER) / SECOND
        folder = self.root / _TEMPORARY
        leftovers = list(folder.iterdir()) if folder.is_dir() else []
        leftovers += [self.root / name for name in self.unlisted()]
        for path in leftovers:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()


def _by_day(batch: LogBatch) -> dict[str, list[ShippedRow]]:
    at = batch.table.index(batch.table.dated_by)
    days: dict[int, list[ShippedRow]] = {}
    for row in batch.rows:
        days.setdefault(row[at] // DAY, []).append(row)
    return {f"{to_datetime(day * DAY):%Y-%m-%d}": rows for day, rows in days.items()}


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _write_durably(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    _sync_file(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
