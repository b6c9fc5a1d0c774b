"""Sources of a processor's items: an earlier result, a query or a function. Pure.

A result that is stored already is read in the transaction of the trigger; queries and functions are
evaluated outside any transaction (`flows.items.expander`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.flows.items.item_list import InvalidItems, KeyedItem, item_list
from penstock.flows.plan import FanOut
from penstock.flows.rows import CompletionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRequest:
    """The flow and the processor whose items are requested; argument of a function in `each`."""

    pipeline: str
    phase: str
    processor: str
    partition: str
    mode: str
    customer: str
    flow_id: str
    correlation_id: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sql: str | None = None
    """The query; None for a function."""
    warehouse: str | None = None
    """Address or name of the warehouse that the query reads."""


ItemQuery: TypeAlias = Callable[[ItemRequest], Sequence[Any]]
"""Runs the query of a request; returns one value per row. Raises an error with a text for users."""


def no_queries(request: ItemRequest) -> Sequence[Any]:
    """Raise an error instead of querying; used by processes without probes."""
    raise InvalidItems(
        f"this process cannot query {request.warehouse or 'a warehouse'}; run an orchestrator with "
        "probes"
    )


def upstream_completion(
    fan_out: FanOut, completions: Sequence[CompletionRow], earlier: Sequence[str]
) -> CompletionRow | None:
    """Return the completion of the processor whose result lists the items."""
    wanted = fan_out.each.processor
    for seen in completions:
        if seen.phase in earlier and wanted in (seen.processor, f"{seen.phase}.{seen.processor}"):
            return seen
    return None


def items_of_result(
    fan_out: FanOut, seen: CompletionRow | None, result: str | None
) -> list[KeyedItem]:
    """Return the items in the stored result of an earlier processor; raise InvalidItems."""
    each = fan_out.each
    if seen is None or seen.status == "failed":
        raise InvalidItems(f"{each.processor} has not completed in this flow, so it lists no items")
    if seen.run_id is None:
        raise InvalidItems(
            f"{each.processor} was completed by an external report, which has no result with items"
        )
    values = None if result is None else json.loads(result)
    if not isinstance(values, Mapping) or each.list_field not in values:
        raise InvalidItems(
            f"expected {each.processor} to return a mapping with {each.list_field!r}, or a list; "
            f"its stored result has "
            + (", ".join(map(repr, values)) if isinstance(values, Mapping) else "no fields")
        )
    return item_list(values[each.list_field], fan_out.item_key, each.title)
