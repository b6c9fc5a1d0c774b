"""Declaration of a fan-out: the items for which a processor has one run each.

    @details.processor(each=upstream("list_games"), item_key="game_id", min_items=0.95)
    def game_summary(run):
        print(run.item, run.item_key)

Items come from the result of an earlier processor, from a query on the warehouse or from a
function. The declaration is plain data except for the function; `flows.items` evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.core.errors import DeclarationError, short_repr
from penstock.core.stored_json import NOT_SERIALIZED

ItemFunction: TypeAlias = Callable[..., Any]
"""A function that takes an `ItemRequest` and returns the items."""

ITEMS_FIELD: Final = "items"
SQL_MAX: Final = 20_000
KEY_FIELD_MAX: Final = 128


class EachKind(StrEnum):
    """The source of the items."""

    UPSTREAM = "upstream"
    QUERY = "query"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Each:
    """The source of the items of a processor; only the fields of its kind are set.

    UPSTREAM: `processor`, whose result has the list in `list_field`. QUERY: `sql`, with one row per
    item (`:partition`, `:customer` and parameters are bound). FUNCTION: `body`, and `reference`,
    its name.
    """

    kind: EachKind
    processor: str | None = None
    list_field: str = ITEMS_FIELD
    sql: str | None = None
    reference: str | None = None
    body: ItemFunction | None = field(
        default=None, compare=False, repr=False, metadata=NOT_SERIALIZED
    )

    @property
    def title(self) -> str:
        """Description of the source for messages."""
        if self.kind is EachKind.UPSTREAM:
            return f"{self.list_field!r} in the result of {self.processor}"
        return "the query" if self.kind is EachKind.QUERY else f"{self.reference}()"


def upstream(processor: str | Callable[..., Any], field: str = ITEMS_FIELD) -> Each:
    """Fan out over the list that an earlier processor returned.

    processor: its function or name; `phase.name` if several earlier phases have one of that name.
    field: key of the list in the mapping that it returns; a returned list is stored as `items`.
    """
    name = processor if isinstance(processor, str) else getattr(processor, "__name__", None)
    if not name:
        raise DeclarationError(
            f"upstream(...) takes a processor or its name, got {short_repr(processor)}."
        )
    if not field:
        raise DeclarationError(f"upstream(...): field must be a name, got {short_repr(field)}.")
    return Each(kind=EachKind.UPSTREAM, processor=name, list_field=field)


def parse_each(value: Any, word: str, where: str) -> Each:
    """Return the source of items of a declaration."""
    if isinstance(value, Each):
        return value
    if isinstance(value, str):
        if not value.strip() or len(value) > SQL_MAX:
            raise DeclarationError(
                f"{where}: {word} takes a query of at most {SQL_MAX:,} characters, got "
                f"{short_repr(value)}."
            )
        return Each(kind=EachKind.QUERY, sql=value)
    if callable(value):
        name = f"{getattr(value, '__module__', '?')}.{getattr(value, '__qualname__', '?')}"
        return Each(kind=EachKind.FUNCTION, reference=name, body=value)
    raise DeclarationError(
        f"{where}: {word} must be upstream(...), a query, or a function that returns the items, "
        f"got {short_repr(value)}."
    )


def parse_item_key(value: Any, word: str, where: str) -> str:
    """Return the name of the field that identifies an item."""
    if not isinstance(value, str) or not 0 < len(value) <= KEY_FIELD_MAX:
        raise DeclarationError(
            f'{where}: {word} must be the name of a field of the items, such as "game_id", got '
            f"{short_repr(value)}."
        )
    return value


def parse_min_items(value: Any, word: str, where: str) -> float:
    """Return the share of items that must succeed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise DeclarationError(
            f"{where}: {word} must be a share above 0 and up to 1, such as 0.95, got "
            f"{short_repr(value)}."
        )
    return float(value)
