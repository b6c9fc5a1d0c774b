"""Names to numbers for the client, cached: numbers never change once given.

Refusals here are what a caller sees for an unknown pipeline or processor, so they suggest what is
near.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.drafts import check_customer
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.model import ProcessorRow
from penstock.store.api import Store, Tx
from penstock.store.registry import (
    customer_ensure_many,
    customer_get,
    pipeline_list,
    processor_list,
)

CACHE_MAX = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInfo:
    """A registered pipeline as the client needs it."""

    number: int
    name: str
    definition: Mapping[str, Any]
    processors: tuple[ProcessorRow, ...]
    has_flow: bool

    @property
    def entries(self) -> tuple[ProcessorRow, ...]:
        """The processors a new flow starts with."""
        return tuple(row for row in self.processors if row.is_entry and row.is_current)


class Names:
    """Looks names up; safe to share between threads (worst case a look-up is repeated)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._customers: dict[str, int] = {}
        self._pipelines: dict[str, PipelineInfo] = {}

    def forget(self) -> None:
        """Drop cached declarations (after registering new ones)."""
        self._pipelines = {}

    def customers(self, tx: Tx, customer_ids: Iterable[str]) -> dict[str, int]:
        """Numbers of customers, created on first sight."""
        wanted = set(customer_ids)
        unknown = {check_customer(c) for c in wanted if c not in self._customers}
        if unknown:
            found = customer_ensure_many(tx, unknown)
            tx.after_commit(lambda: self._remember(found))
            return {c: self._customers[c] for c in wanted - unknown} | found
        return {c: self._customers[c] for c in wanted}

    def customer(self, tx: Tx, customer_id: str | None) -> int | None:
        """The number of an existing customer; None stays None, an unknown one is NotFound."""
        if customer_id is None:
            return None
        if customer_id not in self._customers:
            number = customer_get(tx, check_customer(customer_id))
            if number is None:
                raise NotFound("customer", customer_id)
            self._customers[customer_id] = number
        return self._customers[customer_id]

    def pipeline(self, name: str, field: str = "pipeline_template") -> PipelineInfo:
        """A registered pipeline, or InvalidInput that names near ones."""
        if name not in self._pipelines:
            self._pipelines = self._store.read(_read_pipelines)
        found = self._pipelines.get(name)
        if found is None:
            known = sorted(self._pipelines)
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"Did you mean {near[0]!r}?" if near else _how_to_register(known)
            raise InvalidInput(field, "a registered pipeline", name, fix)
        return found

    def pipelines(self) -> list[PipelineInfo]:
        """Every registered pipeline, by name."""
        self._pipelines = self._store.read(_read_pipelines)
        return [self._pipelines[name] for name in sorted(self._pipelines)]

    def _remember(self, found: Mapping[str, int]) -> None:
        if len(self._customers) > CACHE_MAX:
            self._customers = {}
        self._customers.update(found)


def _read_pipelines(tx: Tx) -> dict[str, PipelineInfo]:
    processors = processor_list(tx)
    return {
        name: PipelineInfo(
            number=number,
            name=name,
            definition=json.loads(definition),
            processors=tuple(row for row in processors if row.pipeline_no == number),
            has_flow=has_flow,
        )
        for number, name, _, definition, has_flow in pipeline_list(tx)
    }


def _how_to_register(known: list[str]) -> str:
    if not known:
        return "No pipeline is registered yet: start a worker, or `penstock pipelines register`."
    return f"Registered: {', '.join(known[:20])}."
