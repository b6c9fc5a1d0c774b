"""Migrations only add: processes of the previous release keep working on the new schema.

A deployment migrates first and replaces processes afterwards, so for a while old code reads and
writes the new tables. What it knows must stay as it is: no table or column is dropped, renamed or
retyped, no column becomes required, no existing table gets a constraint that old code could
violate. What must go is removed in two releases: first unused, then dropped. A migration that
cannot be additive says `-- breaking: yes`, or is listed here with the reason why old code does not
notice. `python -m tests.harness.upgrade` runs old code on the new schema.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from penstock.db.migrate import Migration, migrations
from penstock.db.statements import Engine

ENGINES: Final[tuple[Engine, ...]] = ("sqlite", "postgres")
EXCEPTIONS: Final[dict[tuple[int, str], str]] = {
    (4, "topics"): "before the first release: the table had held names of listeners only",
    (4, "listened_topics"): "the same table under its temporary name",
    (
        4,
        "dead_letters",
    ): "before the first release: the index covers rows that only new code writes",
    (17, "subscriptions"): "SQLite cannot widen a check in place: the table is copied as it is",
    (26, "history"): "SQLite cannot widen a check in place: the column is copied under its name",
}
"""(number, table) of statements that are not additive, and why old code does not notice them."""

_BODY: Final = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)
_COMMENT: Final = re.compile(r"--[^\n]*")
_CREATED: Final = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.IGNORECASE)
_ALTER: Final = r"^ALTER TABLE (?:ONLY )?(\w+)"
_RULES: Final = {
    what: re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for what, pattern in {
        "drops a table": r"^DROP TABLE (?:IF EXISTS )?(\w+)",
        "renames a table": rf"{_ALTER} RENAME TO",
        "renames a column": rf"{_ALTER} RENAME (?!TO)",
        "drops a column": rf"{_ALTER}\b.*\bDROP COLUMN",
        "changes a type": rf"{_ALTER}\b.*\bALTER COLUMN \w+ (?:SET DATA )?TYPE",
        "makes a column required": rf"{_ALTER}\b.*\bSET NOT NULL",
        "drops a default": rf"{_ALTER}\b.*\bDROP DEFAULT",
        "adds a required column": rf"{_ALTER} ADD COLUMN (?![^,;]*\bDEFAULT\b)[^,;]*\bNOT NULL\b",
        "adds a constraint": rf"{_ALTER} ADD (?:CONSTRAINT|CHECK|UNIQUE|FOREIGN)",
        "adds a unique index": r"^CREATE UNIQUE INDEX (?:IF NOT EXISTS )?\w+ ON (?:ONLY )?(\w+)",
    }.items()
}


def statements(script: str) -> list[str]:
    """Return the statements of a script, without comments and the bodies of functions."""
    plain = _BODY.sub("$$", _COMMENT.sub("", script))
    return [" ".join(one.split()) for one in plain.split(";") if one.strip()]


def changes(script: str) -> list[tuple[str, str]]:
    """Return (table, what is done) for statements that old code could notice.

    What a migration does to a table that it created itself is no change.
    """
    own: set[str] = set()
    found = []
    for statement in statements(script):
        own |= {name.lower() for name in _CREATED.findall(statement)}
        for what, rule in _RULES.items():
            match = rule.match(statement)
            if match and match[1].lower() not in own:
                found.append((match[1].lower(), what))
    return found


def undeclared(migration: Migration) -> list[str]:
    """Return the changes of a migration that are neither declared breaking nor listed."""
    if migration.breaking:
        return []
    return [
        f"{migration.number:04d}_{migration.name} {what}: {table}"
        for table, what in changes(migration.script)
        if (migration.number, table) not in EXCEPTIONS
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_migrations_are_additive(engine: Engine) -> None:
    """No migration changes what the code before it knows."""
    assert [fault for one in migrations(engine) for fault in undeclared(one)] == []


def test_every_exception_is_needed() -> None:
    """The list names no migration that became additive."""
    found = {
        (one.number, table)
        for engine in ENGINES
        for one in migrations(engine)
        for table, _ in changes(one.script)
    }
    assert sorted(EXCEPTIONS.keys() - found) == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("ALTER TABLE runs ADD COLUMN note text;", []),
        ("ALTER TABLE runs ADD COLUMN n int NOT NULL DEFAULT 0;", []),
        ("ALTER TABLE runs ADD COLUMN n int DEFAULT 0 NOT NULL;", []),
        ("ALTER TABLE runs ALTER COLUMN n SET DEFAULT 5;", []),
        ("ALTER TABLE runs DROP CONSTRAINT runs_check;", []),
        ("CREATE TABLE a (n int); CREATE UNIQUE INDEX a_n ON a (n); DROP TABLE a;", []),
        ("CREATE INDEX runs_n ON runs (n);", []),
        ("CREATE FUNCTION f() RETURNS void AS $$ DROP TABLE runs; $$ LANGUAGE sql;", []),
        ("-- DROP TABLE runs;\nSELECT 1;", []),
        ("ALTER TABLE runs ADD COLUMN n int NOT NULL;", [("runs", "adds a required column")]),
        ("DROP TABLE runs;", [("runs", "drops a table")]),
        ("ALTER TABLE runs DROP COLUMN n;", [("runs", "drops a column")]),
        ("ALTER TABLE runs RENAME COLUMN a TO b;", [("runs", "renames a column")]),
        ("alter table runs rename to jobs;", [("runs", "renames a table")]),
        ("ALTER TABLE runs ALTER COLUMN n TYPE text;", [("runs", "changes a type")]),
        ("ALTER TABLE runs\n  ALTER COLUMN n SET NOT NULL;", [("runs", "makes a column required")]),
        ("ALTER TABLE runs ALTER COLUMN n DROP DEFAULT;", [("runs", "drops a default")]),
        ("ALTER TABLE runs ADD CONSTRAINT c CHECK (n > 0);", [("runs", "adds a constraint")]),
        ("CREATE UNIQUE INDEX runs_n ON runs (n);", [("runs", "adds a unique index")]),
    ],
)
def test_rule(script: str, expected: list[tuple[str, str]]) -> None:
    """The rule finds what old code could notice, and nothing else."""
    assert changes(script) == expected
