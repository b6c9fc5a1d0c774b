"""Tracking use cases: the execution log of one cause, and search for any object."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.fields import check_text
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import CustomerOrDefault
from penstock.core.records.record import Meta, Page, time, time_or_none
from penstock.db.store import Transactions, Tx
from penstock.tracking.alerted import subjects_of
from penstock.tracking.from_rows import ExecutionPage, actions_of, execution_record
from penstock.tracking.records import Execution, FoundObject, SearchResult
from penstock.tracking.rows import ExecutionRow, FoundRow, Position, TracedIds
from penstock.tracking.search_text import KINDS, search_text
from penstock.tracking.store.causes import traced_ids
from penstock.tracking.store.executions import (
    alerts_about,
    entities_of,
    executions_of,
    position_of,
    run_causes,
)
from penstock.tracking.store.search import objects_found

__all__ = ["Tracking"]

FOUND_MAX: Final = 4
"""Maximum number of objects of each kind that a search returns."""

Cause: TypeAlias = Annotated[
    str,
    Meta(
        description="Correlation id, or the id of a flow, run, message or dead letter, or the "
        "id that another system gave to a report or message.",
        max_length=500,
    ),
]
Status: TypeAlias = Annotated[
    Literal["completed", "failed", "skipped"] | None,
    Meta(description="Return only executions with this status."),
]
_Q = Meta(
    description="A complete id, at least four characters of one, a message id, a correlation id or "
    "its beginning, an entity (`players:1630567`), a pipeline and a partition, the beginning of a "
    "customer's id, or a part of a name.",
    max_length=300,
)
_KINDS = Meta(description="Kinds of objects to find, separated by commas; all when omitted.")
_COMMANDS: Final = {
    "run": ("runs", "show"),
    "flow": ("flows", "show"),
    "config": ("configs", "show"),
    "dead_letter": ("dlq", "show"),
    "message": ("trace",),
    "correlation": ("trace",),
    "entity": ("entity",),
    "customer": ("customers", "show"),
    "pipeline": ("pipelines", "show"),
    "topic": ("topics", "show"),
    "subscription": ("subscriptions", "show"),
    "limit": ("limits", "show"),
}
"""Commands that show an object by its id; `alert` and `processor` differ."""
_ID_KINDS: Final = {
    "run": "run",
    "flow": "flow",
    "config": "cfg",
    "dead_letter": "dl",
    "alert": "alert",
}


class Tracking:
    """Use cases that follow executions and find objects."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def executions(
        self,
        cause: Cause,
        *,
        status: Status = None,
        cursor: Cursor = None,
        limit: PageLimit = 100,
    ) -> Page[Execution]:
        """List all executions that belong to one cause, newest first.

        Runs of flows, single runs, external reports, evaluations of gates that started nothing
        (`skipped`), and deliveries of messages.
        """
        check_text("cause", cause)
        context = ExecutionPage(cause)

        def body(tx: Tx, after: list[Any] | None) -> tuple[ExecutionPage, list[ExecutionRow]]:
            number = self._names.customer_key(tx, None)
            ids = traced_ids(tx, cause, number)
            position = None if after is None else Position(after[0], after[1], after[2])
            rows = _page(tx, ids, number, position, status, limit)
            made = ExecutionPage(
                correlation_id=ids.correlation_id,
                causes=run_causes(tx, actions_of(rows)),
                alerts=alerts_about(tx, list(subjects_of(rows))),
                entities=entities_of(tx, rows),
            )
            return made, rows

        def read(after: list[Any] | None) -> list[ExecutionRow]:
            nonlocal context
            context, rows = self._store.read(lambda tx: body(tx, after))
            return rows

        return paged(
            self._names,
            "executions",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda row: list(position_of(row)),
            record=lambda row: execution_record(row, context),
            filters={"cause": cause, "status": status},
        )

    def find(
        self,
        q: Annotated[str, _Q],
        *,
        kinds: Annotated[str | None, _KINDS] = None,
        customer: CustomerOrDefault = None,
    ) -> SearchResult:
        """Search for objects of any kind; at most four of each kind.

        Fragments are compared with the newest ids of each kind. Entities are those of the customer.
        """
        check_text("q", q)
        chosen = _chosen(kinds)
        wanted = search_text(q)

        def body(tx: Tx) -> SearchResult:
            number = self._names.customer_key(tx, customer)
            owner = self._entity_owner(tx, customer)
            by_kind: dict[str, dict[str, FoundObject]] = {}
            for row in objects_found(tx, wanted, number, owner, FOUND_MAX + 1):
                if row.kind in chosen:
                    made = _found(row)
                    by_kind.setdefault(row.kind, {}).setdefault(made.id, made)
            groups = [list(by_kind.get(kind, {}).values()) for kind in KINDS]
            return SearchResult(
                q=wanted.text,
                as_of=time(tx.now()),
                items=[one for group in groups for one in group[:FOUND_MAX]],
                has_more=any(len(group) > FOUND_MAX for group in groups),
            )

        return self._store.read(body)

    def _entity_owner(self, tx: Tx, customer: str | None) -> tuple[CustomerKey, str] | None:
        customer_id = self._names.customer_or_default(customer)
        try:
            number = self._names.customer_key(tx, customer_id)
        except NotFound:
            return None
        return None if number is None else (number, customer_id)


def _page(
    tx: Tx,
    ids: TracedIds,
    customer_key: CustomerKey | None,
    position: Position | None,
    status: str | None,
    limit: int,
) -> list[ExecutionRow]:
    """Return the next executions with a status; read until there are enough or none are left."""
    kept: list[ExecutionRow] = []
    while True:
        rows = executions_of(tx, ids, customer_key, after=position, limit=limit)
        kept += [row for row in rows if status in (None, row.status)]
        if len(rows) < limit or len(kept) >= limit:
            return kept[:limit]
        position = position_of(rows[-1])


def _chosen(kinds: str | None) -> frozenset[str]:
    if kinds is None:
        return frozenset(KINDS)
    given = [word.strip() for word in kinds.split(",") if word.strip()]
    for word in given:
        if word not in KINDS:
            raise InvalidInput("kinds", f"kinds from {', '.join(KINDS)}", word)
    return frozenset(given)


def _found(row: FoundRow) -> FoundObject:
    kind = _ID_KINDS.get(row.kind)
    name = row.name
    identity = encode(kind, row.number) if kind else str(row.number or row.name)
    owner = [] if row.customer_id is None else ["--customer", row.customer_id]
    parts = [*_COMMANDS.get(row.kind, ()), identity]
    if row.kind in ("topic", "subscription", "limit", "entity"):
        parts += owner
    elif row.kind == "alert":
        parts = ["alerts", "list"]
    elif row.kind == "processor":
        parts = ["pipelines", "show", identity.partition("/")[0]]
    return FoundObject(
        kind=row.kind,
        id=identity,
        name=name,
        customer=row.customer_id,
        state=row.state,
        at=time_or_none(row.at),
        command=" ".join(["penstock", *(shlex.quote(part) for part in parts)]),
    )
