"""Named SQL: reads the `sql/*.sql` files of every package and renders them for one engine.

A statement starts with `-- name: verb` (optionally `[postgres]` or `[sqlite]` if that engine needs
its own text) and one line of purpose. Placeholders let one text serve both engines:

    {{now}}         the injected time, else the database clock
    {{batch}}       the rows passed with the call, as a table (`-- batch: name type [key], ...`)
    {{any ids}}     membership in a list parameter
    {{pg:...}} {{lite:...}}   text for one engine only
    {{fragment}}    shared text, declared with `-- fragment: name`
    {{params f}} {{sets f}} {{a f}}   the columns that fragment f lists as parameters (:x, :y), as
                    assignments (x = :x, y = :y), or of the table a (a.x, a.y)

On PostgreSQL a batch of one row is rendered separately, with `{{batch}}` as that row instead of
unnested arrays. `[postgres one]` declares a separate text for it where that is faster.

This module never connects to a database; the drivers request rendered text from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

Engine = Literal["sqlite", "postgres"]
_Key = tuple[str, str]

_HEADER = re.compile(r"^-- (name|fragment): (\w+)(?: \[(\w+(?: one)?)\])?\s*$", re.MULTILINE)
_BATCH = re.compile(r"^-- batch: (.+(?:\n--   .+)*)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_PARAM = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_ARRAY = re.compile(r"%\((b_\w+)\)s")
_ANY = re.compile(r"\{\{any (\w+)\}\}")
_ONE_ENGINE = re.compile(r"\{\{(pg|lite):((?:[^{}]|\{(?!\{)|\}(?!\}))*)\}\}", re.DOTALL)
_PIECE = re.compile(r"\{\{(\w+)\}\}")
_COLUMNS = re.compile(r"\{\{(?!any )(\w+) (\w+)\}\}")
_LITE_WORDS = ((re.compile(r"\bgreatest\("), "max("), (re.compile(r"\bleast\("), "min("))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a statement's batch."""

    name: str
    type: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A named statement for one engine: one or more texts run in order; the last one returns rows.

    one: the texts for a batch of a single row, whose values are bound as `o_<column>`; empty where
    the engine does not use them.
    """

    name: str
    texts: tuple[str, ...]
    params: tuple[frozenset[str], ...]
    batch: tuple[Column, ...]
    source: str
    one: tuple[str, ...] = ()
    arrays: frozenset[str] = frozenset()
    """Columns of a single row that the text also uses as arrays, as `b_<column>`."""

    @property
    def all_params(self) -> frozenset[str]:
        """All parameters bound by any of the texts, except those of the batch."""
        return frozenset().union(*self.params)


@dataclass(frozen=True, slots=True)
class _Source:
    body: str
    batch: str
    path: str


def parse(texts: dict[str, str]) -> tuple[dict[_Key, _Source], dict[_Key, str]]:
    """Split files into statements and fragments, keyed by (name, engine or '')."""
    statements: dict[_Key, _Source] = {}
    fragments: dict[_Key, str] = {}
    for path, text in sorted(texts.items()):
        marks = list(_HEADER.finditer(text))
        for mark, following in zip(marks, [*marks[1:], None], strict=True):
            body = text[mark.end() : following.start() if following else len(text)]
            kind, name, engine = mark.group(1), mark.group(2), mark.group(3) or ""
            batch = _BATCH.search(body)
            columns = batch.group(1).replace("\n--", " ") if batch else ""
            clean = _COMMENT.sub("", body).strip()
            if kind == "fragment":
                if (name, engine) in fragments:
                    raise ValueError(f"fragment {name} [{engine}] is declared twice ({path})")
                fragments[name, engine] = clean
                continue
            if (name, engine) in statements:
                raise ValueError(f"statement {name} [{engine}] is declared twice ({path})")
            statements[name, engine] = _Source(body=clean, batch=columns, path=path)
    return statements, fragments


class Statements(MutableMapping[str, Statement]):
    """The statements of one engine by name; each is rendered when it is first used.

    A command uses only a few of the several hundred statements.
    """

    def __init__(
        self, engine: Engine, sources: dict[_Key, _Source], fragments: dict[_Key, str]
    ) -> None:
        self._engine: Engine = engine
        self._sources = sources
        self._fragments = fragments
        self._names = sorted({name for name, of in sources if of in ("", engine)})
        self._rendered: dict[str, Statement] = {}

    def __getitem__(self, name: str) -> Statement:
        found = self._rendered.get(name)
        if found is None:
            found = self._rendered[name] = self._render(name)
        return found

    def __setitem__(self, name: str, statement: Statement) -> None:
        self._rendered[name] = statement

    def __delitem__(self, name: str) -> None:
        del self._rendered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _render(self, name: str) -> Statement:
        """Render a statement; a text for the engine takes precedence."""
        engine, fragments = self._engine, self._fragments
        source = self._sources.get((name, engine)) or self._sources[name, ""]
        columns = tuple(Column(*part.split()) for part in source.batch.split(",") if part.strip())
        texts = _texts(_expand(source.body, engine, columns, fragments, name))
        params = tuple(frozenset(_PARAM.findall(part)) for part in texts)
        one: tuple[str, ...] = ()
        if engine == "postgres":
            texts = tuple(map(_with_psycopg_params, texts))
        if engine == "postgres" and columns:
            own = self._sources.get((name, "postgres one"), source)
            row = {**fragments, ("batch", ""): _row(columns)}
            one = tuple(
                map(_with_psycopg_params, _texts(_expand(own.body, engine, columns, row, name)))
            )
        arrays = frozenset(_ARRAY.findall(" ".join(one)))
        return Statement(name, texts, params, columns, source.path, one, arrays)


def _texts(body: str) -> tuple[str, ...]:
    """Split a body into its statements."""
    parts = (part.strip() for part in body.split(";\n"))
    return tuple(part.rstrip(";") for part in parts if part)


def _with_psycopg_params(text: str) -> str:
    """Rewrite the parameters in psycopg's syntax."""
    return _PARAM.sub(r"%(\1)s", text.replace("%", "%%"))


def expand_schema(text: str, engine: Engine) -> str:
    """Expand the placeholders that a migration may use."""
    identity = {
        "postgres": "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "sqlite": "integer PRIMARY KEY AUTOINCREMENT",
    }[engine]
    key = "bigint PRIMARY KEY" if engine == "postgres" else "integer PRIMARY KEY"
    text = text.replace("{{id}}", identity).replace("{{key}}", key)
    fill = r"WITH (fillfactor = \1)" if engine == "postgres" else ""
    text = re.sub(r"\{\{fillfactor (\d+)\}\}", fill, text)
    return _only(text, engine)


def _expand(
    body: str, engine: Engine, columns: tuple[Column, ...], fragments: dict[_Key, str], name: str
) -> str:
    def expansion(match: re.Match[str]) -> str:
        word = match.group(1)
        if word == "now":
            # SQLite has no server clock: its driver binds the time, injected or not.
            return "coalesce(CAST(:now AS bigint), db_now())" if engine == "postgres" else ":now"
        found = fragments.get((word, engine), fragments.get((word, "")))
        if found is None and word == "batch":
            return _batch(engine, columns, name)
        if found is None:
            raise ValueError(f"statement {name}: unknown placeholder {{{{{word}}}}}")
        return found

    def columns_of(match: re.Match[str]) -> str:
        form, listed = match.groups()
        names = [one.strip() for one in fragments[listed, ""].split(",")]
        if form == "sets":
            return ", ".join(f"{one} = :{one}" for one in names)
        return ", ".join(f":{one}" if form == "params" else f"{form}.{one}" for one in names)

    for _ in range(4):
        body = _COLUMNS.sub(columns_of, _PIECE.sub(expansion, _only(body, engine)))
    membership = r"= ANY(:\1)" if engine == "postgres" else r"IN (SELECT value FROM json_each(:\1))"
    body = _ANY.sub(membership, body)
    if engine == "sqlite":
        for pattern, word in _LITE_WORDS:
            body = pattern.sub(word, body)
    if "{{" in body:
        raise ValueError(f"statement {name}: a placeholder was left unexpanded")
    return body


def _only(text: str, engine: Engine) -> str:
    wanted = "pg" if engine == "postgres" else "lite"
    return _ONE_ENGINE.sub(lambda m: m.group(2) if m.group(1) == wanted else "", text)


def _batch(engine: Engine, columns: tuple[Column, ...], name: str) -> str:
    if not columns:
        raise ValueError(f"statement {name} uses {{{{batch}}}} without declaring its columns")
    names = ", ".join(column.name for column in columns)
    if engine == "sqlite":
        return f"(SELECT rowid AS ord, {names} FROM {batch_table(name)}) AS batch"
    arrays = ", ".join(f":b_{column.name}::{column.type}[]" for column in columns)
    return f"unnest({arrays}) WITH ORDINALITY AS batch({names}, ord)"


def _row(columns: tuple[Column, ...]) -> str:
    """Render a batch of one row."""
    values = ", ".join(f"CAST(:o_{c.name} AS {c.type}) AS {c.name}" for c in columns)
    return f"(SELECT CAST(1 AS bigint) AS ord, {values}) AS batch"


def batch_table(name: str) -> str:
    """Return the name of the temporary table that holds a statement's batch on SQLite."""
    return f"temp.batch_{name}"


@cache
def load(engine: Engine) -> Statements:
    """Return all statements for one engine."""
    package = resources.files("penstock")
    texts = {path: file.read_text("utf-8") for path, file in _files(package, "")}
    return Statements(engine, *parse(texts))


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield every `.sql` file in a folder named `sql`, with its path below the package."""
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}" if path else entry.name
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry, name)
        elif name.endswith(".sql") and name.split("/")[-2:-1] == ["sql"]:
            yield name, entry
