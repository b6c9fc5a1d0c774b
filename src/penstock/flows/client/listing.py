"""Selection and order of flows in a list, with forecasts and phases on request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.core.clock import FAR_FUTURE, Micros, request_time
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode_or_none
from penstock.db.store import Tx
from penstock.flows.cascade import FlowState
from penstock.flows.client.grid import in_order, phase_names
from penstock.flows.forecast.forecast import Forecast
from penstock.flows.forecast.store import forecasts_of
from penstock.flows.from_rows import flow_record, progress_of
from penstock.flows.records import Flow
from penstock.flows.rows import FlowFilter, FlowRow, PhaseMarkRow
from penstock.flows.store.flows import (
    LISTS,
    OPENING_MAX,
    flow_id_from,
    flow_list,
    flow_list_trouble,
    flow_search,
    phase_states,
)
from penstock.flows.store.grid import phase_marks
from penstock.flows.store.logs import cancel_reasons

HELD_UP: Final = ("WAITING", "BLOCKED")
"""States of a phase by which flows are listed, in addition to those of the flow itself."""
RISKS_MAX: Final = 500
"""Maximum number of open flows that can be sorted by risk, because each needs a forecast."""

Only: TypeAlias = Literal["open", "trouble"]
FlowSort: TypeAlias = Literal["newest", "oldest", "risk"]


class FlowOrder(NamedTuple):
    """Selection, order and optional fields of a list of flows."""

    only: Only | None
    sort: FlowSort
    risk: bool
    phases: bool


def check_order(order: FlowOrder, state: str | None) -> None:
    """Raise InvalidInput for a state or an order that no index serves."""
    states = (*FlowState, *HELD_UP)
    if state is not None and state not in states:
        raise InvalidInput("state", f"one of {', '.join(states)}", state)
    if state is not None and order.only is not None:
        raise InvalidInput("only", "omitted if `state` is given", order.only)
    is_open = order.only == "open" or state in (FlowState.OPEN, *HELD_UP)
    if order.sort != "newest" and not is_open:
        raise InvalidInput(
            "sort", "newest, unless only open flows are listed", order.sort, "Add only=open."
        )


def filter_of(
    tx: Tx,
    names: NameResolver,
    wanted: FlowFilter,
    search: str | None,
    times: tuple[datetime | None, datetime | None],
) -> FlowFilter:
    """Add the time of opening and the search to a filter; a whole id is looked up."""
    since, until = (
        None if at is None else request_time(at, field)
        for at, field in zip(times, ("since", "until"), strict=True)
    )
    number = None if search is None else decode_or_none("flow", search)
    if number is not None:
        wanted = wanted._replace(first_id=number, last_id=number)
    else:
        wanted = wanted._replace(fragment=search or None)
        # Without a customer, narrow the range of ids, which grow with time; one customer has few
        # flows.
        if names.customer_id is None and since is not None:
            wanted = wanted._replace(first_id=flow_id_from(tx, since))
        if names.customer_id is None and until is not None:
            wanted = wanted._replace(last_id=flow_id_from(tx, until + 2 * OPENING_MAX))
    return wanted._replace(since=since or 0, until=FAR_FUTURE if until is None else until)


def flow_page(
    tx: Tx, names: NameResolver, wanted: FlowFilter, order: FlowOrder
) -> tuple[Sequence[Flow], list[int] | None]:
    """Return one page of flows, and the position to continue after; None at the end."""
    if order.sort == "risk":
        return _by_risk(tx, names, wanted, order), None
    if order.only == "trouble":
        rows = flow_list_trouble(tx, wanted)
    elif wanted.fragment is not None and wanted.state not in LISTS:
        rows, last = flow_search(tx, wanted)
        return flow_records(tx, names, rows, order), None if last is None else [last]
    else:
        rows = flow_list(tx, wanted)
    following = [rows[-1].flow_id * wanted.direction] if len(rows) >= wanted.limit else None
    return flow_records(tx, names, rows, order), following


def _by_risk(tx: Tx, names: NameResolver, wanted: FlowFilter, order: FlowOrder) -> Sequence[Flow]:
    """Return open flows by probability of missing their target, highest first, then by expected
    end.
    """
    rows = flow_list(tx, wanted._replace(limit=RISKS_MAX + 1))
    if len(rows) > RISKS_MAX:
        raise InvalidInput(
            "sort",
            f"newest or oldest: more than {RISKS_MAX} open flows match",
            order.sort,
            "Choose a pipeline or a customer.",
        )
    seen = forecasts_of(tx, rows)

    def rank(row: FlowRow) -> tuple[float, Micros, int]:
        forecast, target_at = seen.get(row.flow_id, (None, None))
        if forecast is None:
            return 0.0, target_at or FAR_FUTURE, row.flow_id
        return -(forecast.miss or 0.0), forecast.p90_at, row.flow_id

    return flow_records(tx, names, sorted(rows, key=rank)[: wanted.limit], order, seen)


def flow_records(
    tx: Tx,
    names: NameResolver,
    rows: Sequence[FlowRow],
    order: FlowOrder,
    seen: dict[int, tuple[Forecast | None, Micros | None]] | None = None,
) -> Sequence[Flow]:
    """Return the records of flows with the requested fields; `seen` has forecasts already made."""
    ids = [row.flow_id for row in rows]
    held_up = phase_states(tx, ids)
    if seen is None:
        seen = forecasts_of(tx, rows) if order.risk else {}
    reasons = cancel_reasons(tx, rows)
    marks = _marks(tx, names, rows) if order.phases or order.risk or order.sort == "risk" else {}
    return [
        flow_record(
            row,
            held_up.get(row.flow_id),
            seen.get(row.flow_id, (None, None)),
            marks.get(row.flow_id) if order.phases else None,
            progress_of(marks[row.flow_id]) if row.flow_id in marks else None,
            cancel_reason=reasons.get(row.flow_id),
        )
        for row in rows
    ]


def _marks(
    tx: Tx, names: NameResolver, rows: Sequence[FlowRow]
) -> dict[int, Sequence[PhaseMarkRow]]:
    if not rows:
        return {}
    known = {one.pipeline_key: one.definition for one in names.pipelines_in(tx)}
    found = phase_marks(tx, [row.flow_id for row in rows])
    return {
        row.flow_id: in_order(found[row.flow_id], phase_names(known[row.pipeline_key]))
        for row in rows
    }
