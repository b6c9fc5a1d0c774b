"""Names to numbers for the client, cached: numbers never change once given.

Declarations do change, also by other processes: they are read again after two seconds, so that
nobody goes on submitting to processors that are retired.

Refusals here are what a caller sees for an unknown pipeline or processor, so they suggest what is
near.

Names may be bound to one customer: every use case asks them which customer it is about, so this is
the first wall between customers. Bound, "whoever" means that customer, and any other one is not
there, whether it exists or not.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.access.store.registry import (
    ProcessorRow,
    customer_ensure_many,
    customer_get,
    pipeline_list,
    processor_list,
)
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import Forbidden, InvalidInput, NotFound
from penstock.core.fields import check_customer
from penstock.core.naming import DEFAULT_CUSTOMER, EXTERNAL_POOL
from penstock.db.store import Store, Tx

CACHE_MAX = 200_000
PAGE_MAX = 10_000
FRESH_SECONDS = 2.0
"""How long declarations are believed without a look at the store."""


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

    def is_external(self, row: ProcessorRow) -> bool:
        """Whether workers outside execute a processor; a retired one is known by its pool."""
        for phase in self.definition["phases"]:
            for declared in phase["processors"]:
                if (phase["name"], declared["name"]) == (row.phase, row.name):
                    return bool(declared["runs"] == "external")
        return row.pool == EXTERNAL_POOL


class _Declared(NamedTuple):
    """Declarations as read at one moment, replaced as a whole; believed until `until`."""

    pipelines: Mapping[str, PipelineInfo]
    until: float


class _Cache:
    """What is known by now; shared by the names of one store, bound or not."""

    def __init__(self) -> None:
        self.customers: dict[str, int] = {}
        self.declared: _Declared | None = None
        self.clock_raised_at = 0
        """When claims last moved the fair clock: callers of one process share the pace."""


class Names:
    """Looks names up; safe to share between threads (worst case a look-up is repeated)."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        """Names of `store`; `clock` only measures how old declarations are."""
        self._store = store
        self._clock = clock or SystemClock()
        self._cache = _Cache()
        self._bound: tuple[str, int] | None = None

    def bound(self, customer_id: str, number: int) -> Names:
        """The same names, and the same cache, for somebody who may know one customer only."""
        assert self._bound in (None, (customer_id, number)), "bound to another customer"
        names = Names(self._store, self._clock)
        names._cache = self._cache
        names._bound = (customer_id, number)
        return names

    @property
    def customer_id(self) -> str | None:
        """The one customer these names are bound to."""
        return None if self._bound is None else self._bound[0]

    @property
    def default_customer(self) -> str:
        """Whose a submission is that names nobody."""
        return DEFAULT_CUSTOMER if self._bound is None else self._bound[0]

    def refuse_bound(self, what: str) -> None:
        """Forbidden when bound: some things belong to the installation, not to a customer."""
        if self._bound is not None:
            raise Forbidden(f"{what}: not for a caller that is bound to one customer.")

    def request_scope(self, text: str) -> str:
        """Under what request keys are remembered: the second wall knows bound ones by it."""
        return text if self._bound is None else f"customer:{self._bound[1]}:{text}"

    def forget(self) -> None:
        """Drop cached declarations (after registering new ones)."""
        self._cache.declared = None

    def knows(self, customer_ids: Iterable[str]) -> bool:
        """Whether the numbers of all these customers are at hand, without a look at the store."""
        if self._bound is not None:
            return all(c == self._bound[0] for c in customer_ids)
        return all(c in self._cache.customers for c in customer_ids)

    def customers(self, tx: Tx, customer_ids: Iterable[str]) -> dict[str, int]:
        """Numbers of customers, created on first sight."""
        wanted = {check_customer(c) for c in customer_ids}
        if self._bound is not None:
            return {c: self._own(c) for c in sorted(wanted)}
        known = self._cache.customers
        unknown = {c for c in wanted if c not in known}
        if unknown:
            found = customer_ensure_many(tx, unknown)
            tx.after_commit(lambda: self._remember(found))
            return {c: known[c] for c in wanted - unknown} | found
        return {c: known[c] for c in wanted}

    def customer(self, tx: Tx, customer_id: str | None) -> int | None:
        """The number of an existing customer; an unknown one is NotFound.

        None stays None, which means everybody; bound, it means the one customer.
        """
        if self._bound is not None:
            return self._bound[1] if customer_id is None else self._own(customer_id)
        if customer_id is None:
            return None
        number = self._cache.customers.get(check_customer(customer_id))
        if number is None:
            number = customer_get(tx, customer_id)
            if number is None:
                raise NotFound("customer", customer_id)
            self._remember({customer_id: number})
        return number

    def known(self, customer_id: str) -> int:
        """The number of an existing customer, looked up outside any transaction; once."""
        number = self._cache.customers.get(customer_id)
        if number is None or self._bound is not None:
            number = self._store.read(lambda tx: self.customer(tx, customer_id))
        assert number is not None
        return number

    def pipeline(
        self, name: str, field: str = "pipeline_template", tx: Tx | None = None
    ) -> PipelineInfo:
        """A registered pipeline, or InvalidInput that names near ones.

        A caller inside a transaction gives it: to open another could wait for itself.
        """
        if not isinstance(name, str):
            raise InvalidInput(field, "the name of a pipeline", name)
        declared = self._cache.declared
        if (
            declared is None
            or name not in declared.pipelines
            or self._clock.monotonic() >= declared.until
        ):
            pipelines = self._read(tx)
        else:
            pipelines = declared.pipelines
        found = pipelines.get(name)
        if found is None:
            known = sorted(pipelines)
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"Did you mean {near[0]!r}?" if near else _how_to_register(known)
            raise InvalidInput(field, "a registered pipeline", name, fix)
        return found

    def pipelines(self) -> list[PipelineInfo]:
        """Every registered pipeline, by name."""
        pipelines = self._read(None)
        return [pipelines[name] for name in sorted(pipelines)]

    def declared(self) -> Mapping[str, PipelineInfo]:
        """Every registered pipeline, as believed for two seconds."""
        declared = self._cache.declared
        if declared is None or self._clock.monotonic() >= declared.until:
            return self._read(None)
        return declared.pipelines

    def claims_move_clock(self, at: int, pace_us: int) -> bool:
        """Whether a claim at this time has to move the fair clock: the first of each pace."""
        is_due = at - self._cache.clock_raised_at >= pace_us
        if is_due:
            self._cache.clock_raised_at = at
        return is_due

    def _read(self, tx: Tx | None) -> Mapping[str, PipelineInfo]:
        # The age counts from before the read: what is registered meanwhile is not believed longer.
        until = self._clock.monotonic() + FRESH_SECONDS
        pipelines = self._store.read(_read_pipelines) if tx is None else _read_pipelines(tx)
        self._cache.declared = _Declared(pipelines, until)
        return pipelines

    def _own(self, customer_id: str) -> int:
        """The bound customer's number; anybody else is not there."""
        assert self._bound is not None
        if check_customer(customer_id) != self._bound[0]:
            raise NotFound("customer", customer_id)
        return self._bound[1]

    def _remember(self, found: Mapping[str, int]) -> None:
        if len(self._cache.customers) > CACHE_MAX:
            self._cache.customers = {}
        self._cache.customers.update(found)


def check_limit(limit: object, field: str = "limit", most: int = PAGE_MAX) -> None:
    """Refuse a page size that an engine would read as no limit at all."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInput(field, f"a whole number from 1 to {most}", limit)


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
