"""`penstock db copy`: move everything into a database of the other engine, and verify it.

One snapshot of the source, one transaction in the target: a copy that fails leaves an empty target.
The hashes of the journal stay valid, because they cover values and not their storage. Entries from
PostgreSQL keep their transaction ids in a SQLite file under a negative cluster number, so that new
entries follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.assembly.database import describe_database, open_store
from penstock.assembly.settings import Settings, sqlite_path
from penstock.core.errors import Conflict, InvalidInput
from penstock.db.copying.source import snapshot_of
from penstock.db.copying.target import copy_to_postgres, copy_to_sqlite
from penstock.db.store import Store
from penstock.monitoring.verify.client import JournalVerifier
from penstock.runs.store.leases import session_list
from penstock.services.upkeep import Sealer


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """Result of a copy: counts, and the result of its verification."""

    tables: dict[str, int]
    entries: int
    problems: list[str]


def copy_database(
    source: Settings,
    target: Settings,
    *,
    while_running: bool = False,
    on_table: Callable[[str, int], None] = lambda _, __: None,
) -> CopyResult:
    """Copy everything from one database into an empty one of the other engine, and verify it.

    on_table: called with each table that was copied, and its number of rows.
    """
    engines = [_is_sqlite(one) for one in (source, target)]
    if engines[0] == engines[1]:
        fix = "Copies within one engine are backups: docs/operations/backup-and-restore.md."
        raise InvalidInput("TARGET", "a database of the other engine", _shown(target), fix)
    store = open_store(source)
    try:
        _check_source(store, _shown(source), while_running=while_running)
        open_store(target, migrate="always").close()
        with snapshot_of(_place(source)) as reader:
            place = _place(target)
            if isinstance(place, str):
                counts = copy_to_postgres(place, _shown(target), reader, on_table)
            else:
                counts = copy_to_sqlite(place, _shown(target), reader, on_table)
    finally:
        store.close()
    copied = open_store(target)
    try:
        found = JournalVerifier(copied).run()
    finally:
        copied.close()
    problems = [f"{one.kind} {one.subject}: {one.text}" for one in found.problems]
    return CopyResult(tables=counts, entries=found.account.entries, problems=problems)


def _check_source(store: Store, where: str, *, while_running: bool) -> None:
    """Seal the journal; raise an error if processes use the source."""
    live = store.read(lambda tx: [one for one in session_list(tx) if one.until_at > tx.now()])
    if live and not while_running:
        names = ", ".join(sorted({one.name for one in live})[:5])
        raise Conflict(
            f"processes use {where} ({names}): their changes after the copy would be missing. "
            "Stop them, or add --while-running for a trial copy."
        )
    Sealer(store).run_once()


def _is_sqlite(settings: Settings) -> bool:
    return settings.database_url.startswith("sqlite:")


def _place(settings: Settings) -> Path | str:
    return (
        Path(sqlite_path(settings.database_url)) if _is_sqlite(settings) else settings.database_url
    )


def _shown(settings: Settings) -> str:
    return describe_database(settings.database_url)
