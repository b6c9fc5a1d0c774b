"""Numbered, forward-only migrations: one file for both engines, applied in one transaction each.

A file has sections that start with `-- both`, `-- only: postgres` or `-- only: sqlite`. The table
`schema_migrations` records applied migrations with a checksum of their text, so that a changed or
unknown migration is detected. Each driver executes the migrations itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from penstock.core.errors import SchemaMismatch
from penstock.db.statements import Engine, expand_schema

BOOKKEEPING = """CREATE TABLE IF NOT EXISTS schema_migrations (
    number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    breaking boolean NOT NULL, applied_at bigint NOT NULL)"""
APPLIED = "SELECT number, name, checksum, breaking FROM schema_migrations ORDER BY number"
RECORD = "INSERT INTO schema_migrations (number, name, checksum, breaking, applied_at) VALUES "
GRANTING = "SELECT tenant_wall();"
"""Grants the tenant role what the rules of all migrations say; the last call does all of it."""

_SECTION = re.compile(r"^-- (both|only: (\w+))\s*$", re.MULTILINE)
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, rendered for one engine."""

    number: int
    name: str
    script: str
    checksum: str
    breaking: bool


@cache
def migrations(engine: Engine) -> tuple[Migration, ...]:
    """Return all migrations in order, rendered for `engine`."""
    found = []
    for file in resources.files(__package__).joinpath("migrations").iterdir():
        match = _FILE.match(file.name)
        if match is None:
            continue
        text = file.read_text("utf-8")
        found.append(
            Migration(
                number=int(match.group(1)),
                name=match.group(2),
                script=expand_schema(section_text(text, engine), engine),
                checksum=hashlib.sha256(text.encode()).hexdigest()[:16],
                breaking="-- breaking: yes" in text,
            )
        )
    return tuple(sorted(found, key=lambda m: m.number))


def section_text(text: str, engine: Engine) -> str:
    """Return the parts of a migration file that `engine` runs."""
    marks = list(_SECTION.finditer(text))
    kept = []
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        if mark.group(2) in (None, engine):
            kept.append(text[mark.end() : following.start() if following else len(text)])
    return "\n".join(kept)


def missing(engine: Engine, applied: Iterable[tuple[int, str, str, bool]]) -> list[Migration]:
    """Return the migrations to apply. Raises SchemaMismatch if the database does not match."""
    known = {m.number: m for m in migrations(engine)}
    done = set()
    for number, name, checksum, breaking in applied:
        done.add(number)
        if number not in known:
            if breaking:
                raise SchemaMismatch(
                    f"the database has the breaking migration {number:04d}_{name}, which this "
                    "version of penstock does not support: upgrade penstock"
                )
            continue
        if known[number].checksum != checksum:
            raise SchemaMismatch(
                f"migration {number:04d}_{name} was applied with different contents "
                f"({checksum}, here {known[number].checksum}): restore the database or the code"
            )
    return [m for m in migrations(engine) if m.number not in done]


def scripts(pending: Sequence[Migration]) -> list[str]:
    """Return the scripts to run in one transaction; rights are granted once, by the last that asks.

    Most of the time of a first migration would be spent on grants that the next one replaces.
    """
    last = max((m.number for m in pending if GRANTING in m.script), default=0)
    return [m.script if m.number == last else m.script.replace(GRANTING, "") for m in pending]


def record_sql(migration: Migration, now: int) -> str:
    """Return the statement that records a migration as applied; its values are never user input."""
    breaking = "TRUE" if migration.breaking else "FALSE"
    return (
        f"{RECORD}({migration.number}, '{migration.name}', '{migration.checksum}', "
        f"{breaking}, {now})"
    )


def split_script(script: str, is_complete: Callable[[str], bool]) -> list[str]:
    """Split a script into single statements, for a driver that runs one at a time."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        if not pending.strip() and line.strip().startswith("--"):
            continue
        pending += line
        if is_complete(pending):
            statements.append(pending.strip())
            pending = ""
    assert not pending.strip(), f"unfinished statement in migration: {pending[:80]!r}"
    return [s for s in statements if s != ";"]
