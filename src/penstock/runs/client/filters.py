"""Filters and sort orders of a list of runs, shared by the API, the command line and the pages."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal, TypeAlias, TypedDict

from penstock.access.store.names import NameResolver
from penstock.core.clock import FAR_FUTURE, Micros, request_time
from penstock.core.errors import InvalidInput
from penstock.core.fields import check_text
from penstock.core.ids import decode, decode_or_none
from penstock.core.records.parameters import CorrelationFilter, PartitionFilter, PipelineFilter
from penstock.core.records.record import Meta, Time, Wire
from penstock.runs.from_rows import ADMISSION_NAMES, WAITING
from penstock.runs.records import RunStateName
from penstock.runs.states import Admission, RunState
from penstock.runs.store.lists.pages import RunFilter

__all__ = ["Before", "RunFilters", "RunOrder", "Text", "WaitsFilter", "row_filter"]

LAST_CHARACTER: Final = "\U0010ffff"

Text: TypeAlias = Annotated[str, Meta(max_length=255)]
RunSort: TypeAlias = Literal["newest", "running_for", "waiting_for", "ended_at"]
WaitsFilter: TypeAlias = Literal[
    "ready", "later", "paused", "blocked", "limited", "gated", "suspended", "waiting"
]
MARKS: Final[dict[str, tuple[int, int]]] = {
    **{name: (mark, mark) for mark, name in ADMISSION_NAMES.items()},
    "waiting": (WAITING[0], WAITING[-1]),
}
"""First and last admission mark that each filter matches."""
SORTED_STATES: Final[dict[str, tuple[str, ...]]] = {
    "newest": tuple(RunState),
    "running_for": ("RUNNING",),
    "waiting_for": ("PENDING",),
    "ended_at": ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "EXPIRED"),
}
"""States of the runs that each sort order lists."""

_START = Meta(description="First scheduled time to return, as a date or an ISO 8601 time.")
_END = Meta(description="Return only runs scheduled before this date or time.")
_STATE = Meta(description="Return only runs in this state.")
_PROCESSOR = Meta(description="Return only runs of this processor, such as `load` or `main.load`.")
_CONFIG = Meta(description="Return only runs of this config.")
_FLOW = Meta(description="Return only runs of this flow.")
_MESSAGE = Meta(description="Return only runs that this message triggered.")
_ERROR_TYPE = Meta(description="Return only runs that failed with this type of error.")
_WAITS = Meta(
    description="Return only pending runs with this admission; `waiting` stands for blocked, "
    "limited, gated and suspended.",
)
_DEAD = Meta(description="Return only dead letters, or with `false` all other runs.")
_ENDED_SINCE = Meta(description="Return only runs that ended at or after this date or time.")
_ENDED_UNTIL = Meta(description="Return only runs that ended before this date or time.")
_SLA = Meta(
    description="Return only runs that met their SLA, or with `false` those that missed it."
)
_SEARCH = Meta(
    description="The id of a run, or the beginning of a correlation id or, for one customer, of a "
    "partition; at most 1,000 ended runs per kind are found.",
)
_SORT = Meta(
    description="`newest`; `running_for`: running runs, longest first; `waiting_for`: pending runs "
    "that are due, oldest first; `ended_at`: ended runs, most recent first.",
)
RunOrder: TypeAlias = Annotated[RunSort, _SORT]
Before: TypeAlias = Annotated[
    Text | None,
    Meta(description="Return only runs listed after this one; alternative to a cursor."),
]


class RunFilters(TypedDict, total=False):
    """Filters of runs; one that is omitted or None matches all."""

    state: Annotated[RunStateName | None, _STATE]
    since: Annotated[Time | None, Wire("start_date"), _START]
    until: Annotated[Time | None, Wire("end_date"), _END]
    pipeline: PipelineFilter
    processor: Annotated[Text | None, _PROCESSOR]
    config_id: Annotated[Text | None, _CONFIG]
    flow_id: Annotated[Text | None, _FLOW]
    partition: PartitionFilter
    correlation_id: CorrelationFilter
    message_id: Annotated[Text | None, _MESSAGE]
    error_type: Annotated[Text | None, _ERROR_TYPE]
    waits: Annotated[WaitsFilter | None, _WAITS]
    is_dead: Annotated[bool | None, _DEAD]
    ended_since: Annotated[Time | None, _ENDED_SINCE]
    ended_until: Annotated[Time | None, _ENDED_UNTIL]
    is_sla_met: Annotated[bool | None, Wire("sla_met"), _SLA]
    search: Annotated[Text | None, _SEARCH]


def row_filter(names: NameResolver, given: RunFilters, sort: str) -> RunFilter:
    """Return the filter of the store without customer and page; raise InvalidInput."""
    unknown = given.keys() - RunFilters.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}")
    state, waits, pipeline = given.get("state"), given.get("waits"), given.get("pipeline")
    config_id, flow_id, search = given.get("config_id"), given.get("flow_id"), given.get("search")
    _check_choice("sort", sort, SORTED_STATES)
    _check_choice("state", state, tuple(RunState))
    _check_choice("waits", waits, MARKS)
    if state is not None and state not in SORTED_STATES[sort]:
        expected = f"{' or '.join(SORTED_STATES[sort])} with sort={sort}"
        raise InvalidInput("state", expected, str(state))
    info = None if pipeline is None else names.pipeline(pipeline, "pipeline")
    number = None if search is None else _searched(search)
    marks = (0, Admission.NONE) if waits is None else MARKS[waits]
    return RunFilter(
        sort=sort,
        prefix=search,
        prefix_end=None if search is None else search + LAST_CHARACTER,
        ids=() if number is None else (number,),
        pipeline=None if info is None else info.pipeline_key,
        processor=given.get("processor"),
        config_id=None if config_id is None else decode("cfg", config_id, "config_id"),
        flow_id=None if flow_id is None else decode("flow", flow_id, "flow_id"),
        state=None if state is None else str(state),
        partition=given.get("partition"),
        correlation_id=given.get("correlation_id"),
        message_id=given.get("message_id"),
        error_type=given.get("error_type"),
        sla_met=given.get("is_sla_met"),
        is_dead=given.get("is_dead"),
        waits_from=marks[0],
        waits_to=marks[1],
        occurrence_from=_bound(given.get("since"), "since", 0),
        occurrence_to=_bound(given.get("until"), "until", FAR_FUTURE),
        ended_from=_bound(given.get("ended_since"), "ended_since", 0),
        ended_to=_bound(given.get("ended_until"), "ended_until", FAR_FUTURE),
    )


def _check_choice(field: str, value: object, options: Collection[str]) -> None:
    if value is not None and value not in options:
        raise InvalidInput(field, f"one of {', '.join(options)}", value)


def _searched(text: str) -> int | None:
    """Return the run that a search names; ids are scrambled, so only a complete id is found."""
    check_text("search", text)
    return decode_or_none("run", text)


def _bound(at: object, field: str, default: Micros) -> Micros:
    return default if at is None else request_time(at, field)
