"""Use cases of schemas: revisions of definitions that the messages of topics must match."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.bus.from_rows import schema_record
from penstock.bus.records import Schema, StoredSchema
from penstock.bus.store.schemas import (
    SchemaRow,
    schema_commit,
    schema_create,
    schema_delete,
    schema_list,
    schema_revision,
    schema_revisions,
)
from penstock.bus.store.topics import SYSTEM
from penstock.core.errors import NotFound
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import Owner
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx

__all__ = ["Schemas"]

SchemaName: TypeAlias = Annotated[
    str, Meta(description="Name of the schema.", examples=["roster"], max_length=255)
]
RevisionId: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=64)] | None,
    Meta(description="Revision of the schema; the latest when omitted."),
]
EarlierRevision: TypeAlias = Annotated[
    str, Meta(description="Revision to roll back to.", max_length=64)
]


class Schemas:
    """Use cases of schemas."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def create(self, schema: Schema, *, customer: Owner = None) -> StoredSchema:
        """Create a schema with its first revision; its name must be new."""

        def body(tx: Tx) -> StoredSchema:
            number = self._customer_key(tx, None)
            if customer is not None:
                number = self._names.ensure_customer_keys(tx, [customer])[customer]
            wanted = _row(schema, number)
            return schema_record(schema_create(tx, wanted, self._actor))

        return self._store.write(body)

    def commit(self, schema: Schema, *, customer: Owner = None) -> StoredSchema:
        """Add a revision to a schema; its type must stay the same."""

        def body(tx: Tx) -> StoredSchema:
            wanted = _row(schema, self._customer_key(tx, customer))
            return schema_record(schema_commit(tx, wanted, self._actor))

        return self._store.write(body)

    def rollback(
        self, name: SchemaName, revision_id: EarlierRevision, *, customer: Owner = None
    ) -> StoredSchema:
        """Add a revision with the definition of an earlier one."""

        def body(tx: Tx) -> StoredSchema:
            number = self._customer_key(tx, customer)
            before = schema_revision(tx, name, number, revision_id)
            return schema_record(schema_commit(tx, before, self._actor))

        return self._store.write(body)

    def get(
        self, name: SchemaName, *, revision_id: RevisionId = None, customer: Owner = None
    ) -> StoredSchema:
        """Return a revision of a schema, the latest by default."""
        return self._store.read(
            lambda tx: schema_record(
                schema_revision(tx, name, self._customer_key(tx, customer), revision_id)
            )
        )

    def list(
        self, *, customer: Owner = None, limit: PageLimit = 50, cursor: Cursor = None
    ) -> Page[StoredSchema]:
        """List schemas by name, each with its latest revision."""
        return paged(
            self._names,
            "schemas",
            lambda after: self._store.read(
                lambda tx: schema_list(
                    tx,
                    self._customer_key(tx, customer),
                    after=after[0] if after else "",
                    limit=limit,
                )
            ),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.name],
            record=schema_record,
            filters={"customer": customer},
        )

    def revisions(
        self,
        name: SchemaName,
        *,
        customer: Owner = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[StoredSchema]:
        """List the revisions of a schema, newest first."""

        def body(tx: Tx, after: list[int] | None) -> list[SchemaRow]:
            number = self._customer_key(tx, customer)
            if after is not None:
                return schema_revisions(tx, name, number, before=after[0], limit=limit)
            found = schema_revisions(tx, name, number, limit=limit)
            if not found:
                raise NotFound("schema", name)
            return found

        return paged(
            self._names,
            "schema revisions",
            lambda after: self._store.read(lambda tx: body(tx, after)),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.revision],
            record=schema_record,
            filters={"customer": customer, "name": name},
        )

    def delete(
        self, name: SchemaName, *, revision_id: RevisionId = None, customer: Owner = None
    ) -> None:
        """Delete a schema or one revision. Topics with a deleted schema reject all messages."""
        self._store.write(
            lambda tx: schema_delete(
                tx, name, self._customer_key(tx, customer), self._actor, revision_id
            )
        )

    def _customer_key(self, tx: Tx, customer: str | None) -> CustomerKey:
        number = self._names.customer_key(tx, customer)
        return SYSTEM if number is None else number


def _row(schema: Schema, number: CustomerKey) -> SchemaRow:
    return SchemaRow(0, number, schema.name, "", schema.kind, schema.definition, 0)
