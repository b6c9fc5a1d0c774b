"""Lists with filters: their choices, fields and rows. A column is declared with its cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from penstock.core.records.record import Page
from penstock.web.parts import Cell, Choice, Empty, Filter, TableColumn, TablePanel
from penstock.web.visit import Visit

TIME_HINT: Final = "2h, 3d or 2025-11-17"
"""Placeholder of a field for a time."""
LABELS: Final = {"q": "id or partition"}
"""Labels of fields that are not named after their value."""
SEARCHING: Final = Empty(
    title="Nothing so far",
    text="The newest rows were searched and none fits. The next rows continue the search.",
    icon="n-trace",
)
"""Note of a list whose search ended early; the next page continues it."""


def pipeline_names(visit: Visit) -> list[str]:
    """Return the pipelines that a filter offers; none if they do not load."""
    none: list[str] = []
    return visit.optional(lambda: [one.pipeline for one in visit.client.views.pipelines()], none)


class ListColumn(NamedTuple):
    """A column of a list: its title, its classes, and the cell of an item."""

    title: str
    css: str
    cell: Callable[[Any], Cell]


def list_panel(
    visit: Visit,
    title: str,
    page: Page[Any],
    columns: Sequence[ListColumn],
    empty: Empty,
    chosen: int | None = None,
    *,
    pinned: Mapping[str, datetime | None] | None = None,
) -> TablePanel:
    """Return one page of a list as a table, with a link to the next page.

    A cursor is valid for the same times only: `pinned` has those that were given as an age.
    """
    times = {name: at.isoformat() for name, at in (pinned or {}).items() if at is not None}
    return TablePanel(
        title=title,
        columns=[TableColumn(title=one.title, css=one.css) for one in columns],
        rows=[[one.cell(item) for one in columns] for item in page.items],
        more=visit.next_page(page.next_cursor, **times),
        chosen=chosen,
        empty=SEARCHING if page.next_cursor is not None else empty,
    )


def choices_of(
    visit: Visit,
    name: str,
    options: Sequence[str],
    chosen: str,
    label: Callable[[str], str] = str,
) -> list[Choice]:
    """Return the values of a filter as links; an empty value (no filter) is shown as "all"."""
    return [
        Choice(
            label=label(one) if one else "all",
            href=visit.here(**{name: one or None, "cursor": None}),
            is_current=one == chosen,
        )
        for one in options
    ]


def filters_of(
    visit: Visit, names: Sequence[str], *, with_customer: bool = True, hint: str = ""
) -> list[Filter]:
    """Return fields for these values of the address; a bound caller gets none for the customer."""
    own = ["customer"] if with_customer and not visit.is_bound else []
    return [
        Filter(
            name=name,
            label=LABELS.get(name, name.replace("_", " ")),
            value=visit.get(name) or "",
            hint=hint,
        )
        for name in [*names, *own]
    ]
