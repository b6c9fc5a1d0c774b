"""Submitting: what a caller wants run, checked, and turned into rows of the queue.

What many submissions have in common (their pipeline, its processor, having no parameters) is looked
at once, so that a bulk submit costs little more than the insert itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.access.store.names import Names, PipelineInfo
from penstock.access.store.registry import ProcessorRow
from penstock.core.errors import InvalidInput
from penstock.core.fields import check_text, parameters_text
from penstock.core.utc_offsets import TIME_MAX
from penstock.db.store import Store, Tx
from penstock.pipelines.parameters import validate
from penstock.runs.rows import NewRun, scoped_key
from penstock.runs.store.runs import run_insert_many


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One thing to run. `at` (micros) defers it; `processor` picks one of several.

    Without a customer it belongs to the one its client is confined to, else to `default`.
    """

    pipeline: str
    customer: str | None = None
    processor: str | None = None
    partition: str | None = None
    parameters: Mapping[str, Any] | None = None
    priority: int = 5
    at: int | None = None
    ordering_key: str | None = None
    correlation_id: str | None = None
    trigger_source: str = "manual"
    message_id: str | None = None


class Checked(NamedTuple):
    """A submission that may be stored: its processor, and its parameters as text."""

    wanted: Submission
    row: ProcessorRow
    parameters: str | None


def addressed(names: Names, wanted: Submission) -> Submission:
    """A submission that says whose it is."""
    if wanted.customer is not None:
        return wanted
    return replace(wanted, customer=names.default_customer)


def check_many(names: Names, submissions: Sequence[Submission]) -> list[Checked]:
    """Each submission with its processor, or InvalidInput that names the field.

    A declaration is looked up once: all submissions are checked against the same one.
    """
    infos: dict[str, PipelineInfo] = {}
    rows: dict[tuple[str, str | None], ProcessorRow] = {}
    bare: set[str] = set()
    checked = []
    for wanted in submissions:
        place = (wanted.pipeline, wanted.processor)
        for field, value in (("pipeline", place[0]), ("processor", place[1])):
            if not isinstance(value, str) and (field == "pipeline" or value is not None):
                raise InvalidInput(field, "a name", value)
        row = rows.get(place)
        if row is None:
            if wanted.pipeline not in infos:
                infos[wanted.pipeline] = names.pipeline(wanted.pipeline, "pipeline")
            row = rows[place] = _pick(infos[wanted.pipeline], place[1])
        text = None
        if wanted.parameters is not None:
            text = _parameters(infos[wanted.pipeline], wanted.parameters)
        elif wanted.pipeline not in bare:
            _parameters(infos[wanted.pipeline], {})
            bare.add(wanted.pipeline)
        _check(wanted)
        checked.append(Checked(wanted, row, text))
    return checked


def is_one_statement(names: Names, checked: Sequence[Checked]) -> bool:
    """Whether `insert` will run a single statement: nobody is new, and nothing has an order."""
    return names.knows({_customer(wanted) for wanted, _, _ in checked}) and not any(
        wanted.ordering_key is not None for wanted, _, _ in checked
    )


def insert(tx: Tx, store: Store, names: Names, checked: Sequence[Checked], actor: str) -> list[int]:
    """Create the runs; returns their ids in order. Workers are woken after the commit."""
    customers = names.customers(tx, {_customer(wanted) for wanted, _, _ in checked})
    news = [
        NewRun(
            customer=(customer := customers[_customer(wanted)]),
            processor=row.processor,
            partition=wanted.partition,
            scheduled_time=wanted.at,
            priority=wanted.priority,
            ordering_key=scoped_key(customer, wanted.ordering_key),
            parameters=parameters,
            correlation_id=wanted.correlation_id,
            trigger_source=wanted.trigger_source,
            trigger_message_id=wanted.message_id,
        )
        for wanted, row, parameters in checked
    ]
    ids = run_insert_many(tx, news, actor)
    assert len(ids) == len(news)
    channels = sorted({f"runs:{pool}" for pool in {row.pool for _, row, _ in checked}})
    if any(wanted.at is not None for wanted, _, _ in checked):
        channels.append("admit")
    tx.after_commit(lambda: store.wake(channels))
    return ids


def fingerprint(wanted: Submission) -> bytes:
    """What makes two submissions the same."""
    body = {name: getattr(wanted, name) for name in wanted.__slots__ if name != "parameters"}
    return json.dumps([body, wanted.parameters], sort_keys=True, default=str).encode()


def _customer(wanted: Submission) -> str:
    assert wanted.customer is not None, "addressed before"
    return wanted.customer


def _parameters(info: PipelineInfo, given: object) -> str:
    text = parameters_text(given)
    validate(info.definition.get("parameters"), given)
    return text


def _pick(info: PipelineInfo, processor: str | None) -> ProcessorRow:
    rows = [row for row in info.processors if row.is_current]
    if processor is not None:
        rows = [row for row in rows if processor in (row.name, f"{row.phase}.{row.name}")]
    names = ", ".join(f"{row.phase}.{row.name}" for row in info.processors if row.is_current)
    if len(rows) != 1:
        raise InvalidInput("processor", f"one processor of {info.name} ({names})", processor)
    return rows[0]


def _check(wanted: Submission) -> None:
    """Refuse, by the name of the field, what the store could not hold."""
    if not _is_whole(wanted.priority) or not 1 <= wanted.priority <= 10:
        raise InvalidInput("priority", "a whole number from 1 to 10", wanted.priority)
    if wanted.at is not None and (not _is_whole(wanted.at) or not 0 <= wanted.at < TIME_MAX):
        raise InvalidInput("at", "microseconds since 1970, before the year 9990", wanted.at)
    for name in ("partition", "ordering_key", "correlation_id"):
        value = getattr(wanted, name)
        if value is not None:
            check_text(name, value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
