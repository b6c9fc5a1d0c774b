"""The statements themselves: same names, all used, all bound, scoped, bounded, and valid SQL."""

import ast
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from penstock.db import statements
from penstock.db.statements import Engine, Statement, load
from penstock.db.store import Store, Tx
from tests.tidy.files import walk

PACKAGE = Path(str(resources.files("penstock")))
ENGINES: tuple[Engine, ...] = ("sqlite", "postgres")
CALLS = {"rows", "run", "later"}


@cache
def sources() -> dict[str, str]:
    """Return every .sql file of the subjects by its path."""
    found = {
        str(path.relative_to(PACKAGE)): path.read_text("utf-8")
        for path in sorted(PACKAGE.rglob("sql/*.sql"))
    }
    assert len(found) > 10
    return found


def raw_statements() -> dict[tuple[str, str], str]:
    """Return each statement as written, with its comments, by (name, engine or '')."""
    found = {}
    for text in sources().values():
        marks = list(
            re.finditer(r"^-- (name|fragment): (\w+)(?: \[(\w+(?: one)?)\])?\s*$", text, re.M)
        )
        for mark, following in zip(marks, [*marks[1:], None], strict=True):
            if mark.group(1) == "name":
                end = following.start() if following else len(text)
                found[mark.group(2), mark.group(3) or ""] = text[mark.end() : end]
    return found


def whole_statements() -> dict[tuple[str, str], str]:
    """Return each statement as written, with its comments, and with its fragments."""
    fragments = {
        mark.group(1): mark.group(2)
        for text in sources().values()
        for mark in re.finditer(
            r"^-- fragment: (\w+)(?: \[\w+\])?$(.*?)(?=^-- (?:name|fragment): |\Z)",
            text,
            re.M | re.S,
        )
    }

    def insert(text: str) -> str:
        return re.sub(r"\{\{(\w+)\}\}", lambda mark: fragments.get(mark.group(1), ""), text)

    return {key: insert(text) for key, text in raw_statements().items()}


@cache
def calls() -> list[tuple[str, str, set[str] | None, bool]]:
    """Return (file, statement, names of bound parameters or None if not literal, with batch)."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(f".{name}(" in text for name in CALLS):
            continue
        for node in walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in CALLS or not node.args:
                continue
            first = node.args[0]
            names = [
                part.value
                for part in ast.walk(first)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            params, batch = bound(node)
            found += [(path.name, name, params, batch) for name in names]
    return [call for call in found if call[1] in load("sqlite") or is_statement_name(call[1])]


def is_statement_name(name: str) -> bool:
    """Whether a string in these calls can only be a statement's name."""
    return re.fullmatch(r"[a-z]+(_[a-z]+)+", name) is not None


def bound(node: ast.Call) -> tuple[set[str] | None, bool]:
    """Return the keys of a literal parameter dict, and whether a batch is given."""
    params = node.args[1] if len(node.args) > 1 else None
    batch = len(node.args) > 2
    for keyword in node.keywords:
        if keyword.arg == "params":
            params = keyword.value
        batch = batch or keyword.arg == "batch"
    if params is None:
        return set(), batch
    if not isinstance(params, ast.Dict) or any(key is None for key in params.keys):
        return None, batch
    return {str(key.value) for key in params.keys if isinstance(key, ast.Constant)}, batch


@cache
def used_names() -> set[str]:
    """Return every string of the package that is the name of a statement."""
    found: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not (set(re.findall(r"[\"'](\w+)[\"']", text)) & set(load("sqlite"))) - found:
            continue  # nothing that is not known yet
        for node in walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_same_names_on_both_engines() -> None:
    """Every statement exists for both engines, with the same batch columns unless it says why."""
    sqlite, postgres = load("sqlite"), load("postgres")
    assert set(sqlite) == set(postgres)
    for name in sqlite:
        assert bool(sqlite[name].batch) == bool(postgres[name].batch), name


def test_engine_specific_texts_say_why() -> None:
    """A statement with a text for one engine says what makes the engines differ."""
    found = raw_statements()
    for name in {name for name, engine in found if engine}:
        texts = [text for (other, engine), text in found.items() if other == name and engine]
        assert any("differs because" in text for text in texts), name


def test_every_statement_has_a_purpose() -> None:
    """A statement starts with a comment on its purpose."""
    for (name, engine), text in raw_statements().items():
        first = text.strip().splitlines()[0]
        assert first.startswith("-- "), (name, engine)
        assert not first.startswith(("-- scope", "-- batch", "-- plan")), (name, engine)


def test_every_statement_is_used() -> None:
    """Every statement is used."""
    assert sorted(set(load("sqlite")) - used_names()) == []


def test_every_name_exists() -> None:
    """Every statement the package calls by name exists."""
    unknown = [(file, name) for file, name, _, _ in calls() if name not in load("sqlite")]
    assert unknown == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_placeholder_is_bound(engine: Engine) -> None:
    """Callers with literal parameters bind all parameters of the statement, and its batch."""
    faults = []
    for file, name, params, batch in calls():
        statement = load(engine)[name]
        needed = {p for p in statement.all_params if p != "now" and not p.startswith("b_")}
        if params is not None and needed - params:
            faults.append((file, name, sorted(needed - params)))
        if bool(statement.batch) != batch:
            faults.append((file, name, ["batch"]))
    assert faults == []


@pytest.mark.parametrize("engine", ENGINES)
def test_no_unused_parameters(engine: Engine) -> None:
    """A literal parameter is used by the statement on at least one engine."""
    other: Engine = "postgres" if engine == "sqlite" else "sqlite"
    for file, name, params, _ in calls():
        known = load(engine)[name].all_params | load(other)[name].all_params
        assert (params or set()) <= known, (file, name)


def test_statements_are_scoped() -> None:
    """A statement over customers' rows filters by customer or says why it serves all of them."""
    faults = []
    for (name, engine), text in whole_statements().items():
        scoped = re.search(r"^-- scope: system \(.+\)$", text, re.M) is not None
        if not scoped and not re.search(r"customer = :customer\b", text):
            faults.append((name, engine))
    assert faults == []


def test_lists_are_bounded() -> None:
    """A statement that lists has a limit, or returns at most one row per given key."""
    for (name, engine), text in whole_statements().items():
        if not name.startswith("flow_event_put") and re.search(
            r"_list(_|$)|_for_|_chain$|_orphans$|_overdue$|_unleased$|_keys$", name
        ):
            bounded = "LIMIT" in text or "{{any ids}}" in text or "{{any keys}}" in text
            assert bounded, (name, engine)


def test_no_offset_while_mutating() -> None:
    """Only paging of ended runs, and the bounds of a journal page and a fold, use OFFSET."""
    users = {name for (name, _), text in raw_statements().items() if "OFFSET" in text}
    assert users <= {"run_list_ended_customer", "journal_window", "slo_runs_next"}


def dummy(statement: Statement) -> dict[str, Any]:
    """Return NULL for every parameter."""
    return dict.fromkeys(statement.all_params | {"now"})


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.postgres
def test_postgres_accepts_every_statement(store: Store) -> None:
    """PostgreSQL can plan every text of every statement against the migrated schema."""

    def body(tx: Tx) -> list[str]:
        faults = []
        connection = tx._connection  # type: ignore[attr-defined]
        for name, statement in load("postgres").items():
            for text, needed in zip(statement.texts, statement.params, strict=True):
                values: dict[str, Any] = dict.fromkeys(needed)
                for column in statement.batch:
                    values[f"b_{column.name}"] = "{}"
                try:
                    with connection.transaction():
                        connection.execute(f"EXPLAIN {text}", values)
                except Exception as error:
                    faults.append(f"{name}: {error}")
            for text in statement.one:
                values = dict.fromkeys(statement.all_params)
                for column in statement.batch:
                    values |= {f"b_{column.name}": "{}", f"o_{column.name}": None}
                try:
                    with connection.transaction():
                        connection.execute(f"EXPLAIN {text}", values)
                except Exception as error:
                    faults.append(f"{name}, one row: {error}")
        return faults

    assert store.write(body) == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_sqlite_accepts_every_statement(store: Store) -> None:
    """SQLite can prepare every text of every statement against the migrated schema."""

    def body(tx: Tx) -> list[str]:
        faults = []
        connection = tx._connection  # type: ignore[attr-defined]
        for name, statement in load("sqlite").items():
            try:
                if statement.batch:
                    columns = ", ".join(f"{c.name} {c.type}" for c in statement.batch)
                    table = statements.batch_table(name)
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
                for text in statement.texts:
                    is_making = text.lstrip().upper().startswith("CREATE")
                    connection.execute(text if is_making else f"EXPLAIN {text}", dummy(statement))
            except Exception as error:
                faults.append(f"{name}: {error}")
        return faults

    assert store.write(body) == []


def test_unknown_placeholders_are_refused() -> None:
    """An unknown placeholder, a missing batch and a duplicate name are detected when parsing."""
    for text, problem in (
        ("-- name: a\n-- p\nSELECT {{nonsense}};", "unknown placeholder"),
        ("-- name: a\n-- p\nSELECT * FROM {{batch}};", "without declaring"),
    ):
        parsed = statements.parse({"x.sql": text})
        with pytest.raises(ValueError, match=problem):
            dict(statements.Statements("sqlite", *parsed))
    with pytest.raises(ValueError, match="declared twice"):
        statements.parse({"x.sql": "-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;"})


def test_limited_rows_are_chosen_once() -> None:
    """Rows that are locked up to a limit are chosen in a materialized CTE.

    A nested loop evaluates a plain subquery for every row; each time it skips what it has locked,
    so that it takes more than the limit.
    """
    subquery = re.compile(r"\bIN\s*\(\s*SELECT\b[^()]*\bLIMIT\b[^()]*SKIP LOCKED", re.S)
    faults = [key for key, text in whole_statements().items() if subquery.search(text)]
    assert faults == []
