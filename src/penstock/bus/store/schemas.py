"""Schemas of messages: revisions by name, and the check of messages when they are published."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.bus import rules
from penstock.bus.message import NewMessage
from penstock.bus.schemas.definitions import (
    ENCODING_ATTRIBUTE,
    NAME_ATTRIBUTE,
    REVISION_ATTRIBUTE,
    check_definition,
    mismatch,
)
from penstock.bus.store.topics import journal_note
from penstock.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first

REVISIONS_MAX: Final = 20
"""Maximum number of revisions of one schema, as in Google Pub/Sub."""
_NEWEST: Final = 2**62


class SchemaRow(NamedTuple):
    """One revision of a schema."""

    revision: int
    customer_key: CustomerKey
    name: str
    revision_id: str
    kind: str
    definition: str
    created_at: int


def schema_create(tx: Tx, wanted: SchemaRow, actor: str) -> SchemaRow:
    """Create a schema with its first revision. Raises AlreadyExists if the name is taken.

    The ids of `wanted` are ignored.
    """
    rules.check_name(wanted.name, "schema")
    _lock(tx, wanted.name, wanted.customer_key)
    if schema_revisions(tx, wanted.name, wanted.customer_key, limit=1):
        raise AlreadyExists("schema", wanted.name)
    return _add(tx, wanted._replace(revision=0), "created", actor)


def schema_commit(tx: Tx, wanted: SchemaRow, actor: str) -> SchemaRow:
    """Add a revision. Raises NotFound if there is no such schema, Conflict if its type differs."""
    _lock(tx, wanted.name, wanted.customer_key)
    found = schema_revisions(tx, wanted.name, wanted.customer_key, limit=REVISIONS_MAX)
    if not found:
        raise NotFound("schema", wanted.name)
    if found[0].kind != wanted.kind:
        raise InvalidInput("schema.type", f"{found[0].kind}, as before", wanted.kind)
    if len(found) >= REVISIONS_MAX:
        raise Conflict(
            f"schema {wanted.name} has {REVISIONS_MAX} revisions, which is the maximum; delete one"
        )
    return _add(tx, wanted._replace(revision=len(found)), "changed", actor)


def _add(tx: Tx, wanted: SchemaRow, action: str, actor: str) -> SchemaRow:
    check_definition(wanted.kind, wanted.definition)
    revision_id = _revision_id(wanted, tx.now())
    params = {
        "customer": wanted.customer_key,
        "name": wanted.name,
        "revision_id": revision_id,
        "kind": wanted.kind,
        "definition": wanted.definition,
        "actor": actor,
    }
    if not tx.rows("bus_schema_add", params):
        raise AlreadyExists("schema revision", f"{wanted.name}@{revision_id}")
    made = schema_revision(tx, wanted.name, wanted.customer_key, revision_id)
    journal_note(tx, ("schema", made.revision, wanted.customer_key), action, actor, wanted.name)
    return made


def _revision_id(wanted: SchemaRow, now: int) -> str:
    """Return the id of a new revision: 8 hexadecimal digits, like Google's."""
    text = f"{wanted.customer_key}:{wanted.name}:{wanted.revision}:{now}:{wanted.definition}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def schema_revisions(
    tx: Tx, name: str, customer_key: CustomerKey, *, before: int = _NEWEST, limit: int = 100
) -> list[SchemaRow]:
    """Return revisions of a schema, newest first."""
    params = {"customer": customer_key, "name": name, "before": before, "limit": limit}
    return [SchemaRow._make(row) for row in tx.rows("bus_schema_revisions", params)]


def schema_revision(
    tx: Tx, name: str, customer_key: CustomerKey, revision_id: str | None = None
) -> SchemaRow:
    """Return a revision of a schema, the latest by default. Raises NotFound if there is none."""
    if revision_id is None:
        row = next(iter(schema_revisions(tx, name, customer_key, limit=1)), None)
    else:
        params = {"customer": customer_key, "name": name, "revision_id": revision_id}
        found = first(tx.rows("bus_schema_revision", params))
        row = None if found is None else SchemaRow._make(found)
    if row is None:
        raise NotFound("schema", name if revision_id is None else f"{name}@{revision_id}")
    return row


def schema_list(
    tx: Tx, customer_key: CustomerKey, *, after: str = "", limit: int = 100
) -> list[SchemaRow]:
    """Return schemas by name, each with its latest revision."""
    params = {"customer": customer_key, "after": after, "limit": limit}
    return [SchemaRow._make(row) for row in tx.rows("bus_schema_list", params)]


def schema_delete(
    tx: Tx, name: str, customer_key: CustomerKey, actor: str, revision_id: str | None = None
) -> None:
    """Delete a schema, or one of its revisions unless it is the only one."""
    _lock(tx, name, customer_key)
    found = schema_revision(tx, name, customer_key, revision_id)
    if revision_id is not None and len(schema_revisions(tx, name, customer_key, limit=2)) < 2:
        raise InvalidInput(
            "name", "a revision that is not the only one", revision_id, "Delete the schema."
        )
    params = {"customer": customer_key, "name": name, "revision_id": revision_id}
    tx.rows("bus_schema_delete", params)
    journal_note(tx, ("schema", found.revision, customer_key), "deleted", actor, name)


def _lock(tx: Tx, name: str, customer_key: CustomerKey) -> None:
    tx.rows("bus_schema_key_lock", {"name": name, "customer": customer_key})


class _Settings(msgspec.Struct):
    schema: str
    encoding: str = "json"
    first_revision_id: str | None = None
    last_revision_id: str | None = None


def check_schema_settings(tx: Tx, settings: str | None, customer_key: CustomerKey) -> None:
    """Raise NotFound if the schema of a topic, or a revision it names, does not exist."""
    if settings is not None:
        wanted = msgspec.json.decode(settings, type=_Settings)
        for revision_id in {None, wanted.first_revision_id, wanted.last_revision_id}:
            schema_revision(tx, wanted.schema, customer_key, revision_id)


def schema_attributes(
    tx: Tx, settings: str, customer_key: CustomerKey, messages: Sequence[NewMessage]
) -> list[dict[str, str]]:
    """Check messages against the schema of their topic; return the attributes that name it.

    Raises InvalidInput for the first message that none of the allowed revisions accepts. A topic
    whose schema was deleted accepts nothing.
    """
    wanted = msgspec.json.decode(settings, type=_Settings)
    revisions = _allowed(schema_revisions(tx, wanted.schema, customer_key), wanted)
    if not revisions:
        raise Conflict(f"the topic's schema {wanted.schema} was deleted: nothing can be published")
    found = []
    for index, message in enumerate(messages):
        why = ""
        for row in revisions:
            wrong = mismatch(row.kind, row.definition, message.data, wanted.encoding)
            if wrong is None:
                found.append(
                    {
                        ENCODING_ATTRIBUTE: wanted.encoding.upper(),
                        NAME_ATTRIBUTE: wanted.schema,
                        REVISION_ATTRIBUTE: row.revision_id,
                    }
                )
                break
            why = why or wrong
        else:
            expected = f"data with schema {wanted.schema} ({wanted.encoding}): {why}"
            raise InvalidInput(f"messages[{index}].data", expected, message.data)
    return found


def _allowed(rows: list[SchemaRow], wanted: _Settings) -> list[SchemaRow]:
    """Return the revisions between the first and the last that are allowed, newest first."""
    ids = [row.revision_id for row in rows]
    start = ids.index(wanted.last_revision_id) if wanted.last_revision_id in ids else 0
    end = ids.index(wanted.first_revision_id) + 1 if wanted.first_revision_id in ids else len(ids)
    return rows[start:end]
