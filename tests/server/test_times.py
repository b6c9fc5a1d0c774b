"""Times and durations at the edges of what can be stored: refused whole, or shown."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from penstock.db.store import Store
from tests.conftest import ENGINES
from tests.kits.dump import raw, tables
from tests.kits.served import Serve
from tests.server.access_table import ROUTES
from tests.server.kit import ServedApi
from tests.server.scene import CALLS, Scene, method_of, scene

TIMES = (
    "0001-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-23:59",
)
SPANS = (-1, 0, 1e-9, 1e15, 1e18, 1e300)
DURATIONS = ("0s", "36525d", "36526d", "999999999999w")
_SPAN = re.compile(r".*_(seconds|minutes)|seconds")
_DURATION = ("after", "expires", "overlap", "lease", "grace", "timeout")
READS = sorted(name for name in ROUTES if name.startswith("GET"))
NEXT_XID = "SELECT pg_snapshot_xmax(pg_current_snapshot())"
FAR = 10**18
"""A time in the year 33658, which no datetime can show."""


@pytest.fixture(params=ENGINES)
def served(request: pytest.FixtureRequest, serve: Serve) -> Iterator[ServedApi]:
    with serve(request.param) as made:
        yield made


def everything(store: Store, names: list[str]) -> dict[str, str]:
    """Return the rows of tables: on PostgreSQL a digest of each, by one query."""
    if store.capabilities.engine == "postgres":
        digests = (
            f"""SELECT '{name}', md5(string_agg(t::text, ',' ORDER BY t::text)) FROM "{name}" t"""
            for name in names
        )
        return dict(raw(store, " UNION ALL ".join(digests)))
    return {name: repr(sorted(map(repr, raw(store, f'SELECT * FROM "{name}"')))) for name in names}


def written(store: Store) -> Any:
    """Return what is the same after a call that wrote no row, which most refusals are."""
    if store.capabilities.engine == "postgres":
        # A transaction gets its id with its first write; the snapshot says which is the next.
        return store.read(lambda tx: tx._connection.execute(NEXT_XID).fetchone())  # type: ignore[attr-defined]
    return store.write(lambda tx: tx._connection.total_changes)  # type: ignore[attr-defined]


def resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a schema, by name."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for choice in schema.get("anyOf", ()):
        if found := resolved(document, choice):
            return found
    return dict(schema.get("properties", {}))


def extremes(name: str, schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values to try for a parameter; none if it is neither time nor duration."""
    if "date-time" in repr(schema):
        return TIMES
    if _SPAN.fullmatch(name):
        return SPANS
    return DURATIONS if name in _DURATION else ()


def hostile_calls(document: Mapping[str, Any], s: Scene) -> Iterator[tuple[str, str, str, Any]]:
    """Yield (label, method, path, body) of every call with one extreme value."""
    for route in ROUTES:
        method, template = route.split(" ", 1)
        operation = document["paths"].get(template, {}).get(method.lower())
        if operation is None:
            continue
        path, body = CALLS[route](s)
        if route == "POST /api/v1/dead-letters/replay":
            body = {"customer_id": s.customer, "rate": 0.001}  # of all, hours apart
        for one in operation.get("parameters", ()):
            for value in extremes(one["name"], one["schema"]) if one["in"] == "query" else ():
                joined = "&" if "?" in path else "?"
                text = str(value).replace("+", "%2B")
                label = f"{route} {one['name']}={value}"
                yield label, method, f"{path}{joined}{one['name']}={text}", body
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for name, schema in resolved(document, content.get("schema", {})).items():
            for value in extremes(name, schema):
                given = body if isinstance(body, dict) else {}
                yield f"{route} {name}={value}", method, path, {**given, name: value}


def test_extremes_are_refused_or_shown(served: ServedApi) -> None:
    """No extreme breaks a request or a later list, and a refusal changes nothing."""
    s = scene(served.harness, "acme")
    by = served.by("admin")
    document = served.by(None).ok("GET", "/openapi.json")
    tried = 0
    store = served.harness.store
    # Keys have a time of last use, and responses are stored.
    names = [name for name in tables(store) if name not in ("api_keys", "requests")]
    before, mark = everything(store, names), written(store)
    for label, method, path, body in hostile_calls(document, s):
        tried += 1
        reply = by.call(method, path, body)
        assert reply.status < 500, (label, reply.body)
        if written(store) == mark:
            continue
        after, mark = everything(store, names), written(store)
        if reply.status >= 400:
            changed = [name for name in after if after[name] != before[name]]
            assert changed == [], (label, reply.body)
        before = after
    assert tried > 100
    for route in READS:
        path, _ = CALLS[route](s)
        assert by.get(path).status in (200, 404), route


def test_lists_survive_impossible_times(served: ServedApi) -> None:
    """Rows whose times no calendar has are listed and shown like others."""
    s = scene(served.harness, "acme")
    store = served.harness.store
    changed = 0
    _allow_changes(store)
    for table in tables(store):
        if table in ("api_keys", "sessions", "migrations"):
            continue
        for column in store.read(lambda tx, table=table: _columns(tx, table)):  # type: ignore[misc]
            if re.fullmatch(r"(.*_)?(at|time|until|since)", column):
                with contextlib.suppress(Exception):  # a check of the table may forbid it
                    raw(store, f'UPDATE "{table}" SET "{column}" = {FAR} WHERE "{column}" > 0')
                    changed += 1
    assert changed > 40
    by = served.by("admin")
    wrong = []
    for route in READS:
        path, _ = CALLS[route](s)
        reply = by.call(method_of(route), path)
        if reply.status not in (200, 404):
            wrong.append((route, reply.status, reply.body[:300]))
    assert wrong == []


def _allow_changes(store: Store) -> None:
    """Switch off the triggers that refuse changes of history."""
    if store.capabilities.engine == "postgres":
        for table in tables(store):
            raw(store, f'ALTER TABLE "{table}" DISABLE TRIGGER USER')
        return
    for (name,) in raw(store, "SELECT name FROM sqlite_master WHERE type = 'trigger'"):
        raw(store, f'DROP TRIGGER "{name}"')


def _columns(tx: Any, table: str) -> list[str]:
    cursor = tx._connection.execute(f'SELECT * FROM "{table}" WHERE 1 = 0')
    return [column[0] for column in cursor.description]
