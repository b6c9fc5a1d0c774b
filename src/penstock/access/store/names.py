"""Cached lookup of customers and pipelines by name; their database keys never change.

Declarations do change, and other processes may change them, so the cache is refreshed after two
seconds, which prevents submissions to retired processors.

Errors about an unknown pipeline or processor suggest similar names.

`NameResolver` can be bound to one customer. Every use case resolves its customer here, so this is
the first layer of tenant isolation: when bound, no customer (None) means the bound customer, and
any other customer raises NotFound, whether it exists or not.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.access.store.keys import secret_ensure
from penstock.access.store.registry import (
    ProcessorRow,
    customer_ensure_many,
    customer_get,
    customer_names,
    pipeline_claim,
    pipeline_list,
    pipeline_sole_get,
    pipeline_sole_put,
    processor_list,
)
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from penstock.core.fields import check_customer
from penstock.core.ids import new_secret
from penstock.core.naming import DEFAULT_CUSTOMER, EXTERNAL_POOL, CustomerKey, PipelineKey
from penstock.db.store import Transactions, Tx

CACHE_MAX = 200_000
PAGE_MAX = 10_000
CACHE_TTL_S = 2.0
"""Seconds for which cached declarations are used without reading the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInfo:
    """A registered pipeline: key, stored definition and processors."""

    pipeline_key: PipelineKey
    name: str
    definition: Mapping[str, Any]
    processors: tuple[ProcessorRow, ...]
    has_flow: bool
    sole_customer: CustomerKey | None = None
    """Customer that used it first, if its needs do not distinguish customers."""
    unowned_tables: tuple[str, ...] = ()
    """Tables of needs that have neither a customer column nor `shared`."""

    @property
    def entries(self) -> tuple[ProcessorRow, ...]:
        """Processors that a new flow starts with."""
        return tuple(row for row in self.processors if row.is_entry and row.is_current)

    def is_gated(self, row: ProcessorRow) -> bool:
        """Return whether a processor has needs, so that it starts behind a gate."""
        return self._declares(row, "needs")

    def fans_out(self, row: ProcessorRow) -> bool:
        """Return whether a processor has one run per item."""
        return self._declares(row, "each")

    def _declares(self, row: ProcessorRow, option: str) -> bool:
        return any(
            bool(declared.get(option))
            for phase in self.definition["phases"]
            for declared in phase["processors"]
            if (phase["name"], declared["name"]) == (row.phase, row.name)
        )

    def is_external(self, row: ProcessorRow) -> bool:
        """Return whether external workers execute a processor.

        A retired processor is no longer in the definition; its pool decides.
        """
        for phase in self.definition["phases"]:
            for declared in phase["processors"]:
                if (phase["name"], declared["name"]) == (row.phase, row.name):
                    return bool(declared["runs"] == "external")
        return row.pool == EXTERNAL_POOL

    def endpoint_url(self, row: ProcessorRow) -> str | None:
        """Return the URL that an HTTP processor's runs are sent to; None for other processors."""
        for phase in self.definition["phases"]:
            for declared in phase["processors"]:
                if (phase["name"], declared["name"]) == (row.phase, row.name):
                    return (declared.get("endpoint") or {}).get("url")
        return None


class _Declared(NamedTuple):
    """Declarations read at one time, replaced as a whole; valid until `until` (monotonic)."""

    pipelines: Mapping[str, PipelineInfo]
    until: float


class _Cache:
    """Cache shared by all name resolvers of one store, bound or not."""

    def __init__(self) -> None:
        self.customers: dict[str, CustomerKey] = {}
        self.declared: _Declared | None = None
        self.cursor_secret: bytes | None = None
        self.clock_raised_at = 0
        """When a claim last advanced the fair clock; shared by all callers in the process."""


class NameResolver:
    """Name lookup; safe to share between threads (at worst a lookup is repeated)."""

    def __init__(self, store: Transactions, clock: Clock | None = None) -> None:
        """Look up names in `store`; `clock` only measures the age of cached declarations."""
        self._store = store
        self._clock = clock or SystemClock()
        self._cache = _Cache()
        self._bound: tuple[str, int] | None = None

    def scoped(self, customer_id: str, number: CustomerKey) -> NameResolver:
        """Return a resolver bound to one customer that shares this cache."""
        assert self._bound in (None, (customer_id, number)), "bound to another customer"
        names = NameResolver(self._store, self._clock)
        names._cache = self._cache
        names._bound = (customer_id, number)
        return names

    def apart(self) -> NameResolver:
        """Return a resolver with a separate cache, for work that is rolled back."""
        names = NameResolver(self._store, self._clock)
        names._bound = self._bound
        return names

    @property
    def customer_id(self) -> str | None:
        """Customer that this resolver is bound to; None if unbound."""
        return None if self._bound is None else self._bound[0]

    @property
    def default_customer(self) -> str:
        """Customer used when a submission names none: the bound one, else `default`."""
        return DEFAULT_CUSTOMER if self._bound is None else self._bound[0]

    def customer_or_default(self, customer_id: str | None) -> str:
        """Return the given customer, or the default one for None.

        Empty text is not treated as None: a caller that lost its customer must not write to
        another's data.
        """
        return self.default_customer if customer_id is None else check_customer(customer_id)

    def require_unscoped(self, what: str) -> None:
        """Raise Forbidden if bound: `what` belongs to the installation, not to a customer."""
        if self._bound is not None:
            raise Forbidden(f"{what}: not available to a caller bound to one customer.")

    def request_scope(self, text: str) -> str:
        """Return the scope for idempotency keys; row-level security recognizes a bound scope."""
        return text if self._bound is None else f"customer:{self._bound[1]}:{text}"

    def cursor_secret(self) -> bytes:
        """Return the secret that signs cursors; all processes of an installation share it."""
        if self._cache.cursor_secret is None:
            made = new_secret()
            text = self._store.write(lambda tx: secret_ensure(tx, "cursor", made))
            self._cache.cursor_secret = text.encode()
        return self._cache.cursor_secret

    def invalidate(self) -> None:
        """Drop cached declarations, after new ones were registered."""
        self._cache.declared = None

    def has_cached(self, customer_ids: Iterable[str]) -> bool:
        """Return whether the keys of all these customers are cached."""
        if self._bound is not None:
            return all(c == self._bound[0] for c in customer_ids)
        return all(c in self._cache.customers for c in customer_ids)

    def ensure_customer_keys(self, tx: Tx, customer_ids: Iterable[str]) -> dict[str, CustomerKey]:
        """Return the keys of customers; create customers that do not exist."""
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

    def customer_key(self, tx: Tx, customer_id: str | None) -> CustomerKey | None:
        """Return the key of an existing customer; raise NotFound if it does not exist.

        None stays None, which means all customers; when bound, None means the bound customer.
        """
        if self._bound is not None:
            return CustomerKey(self._bound[1] if customer_id is None else self._own(customer_id))
        if customer_id is None:
            return None
        number = self._cache.customers.get(check_customer(customer_id))
        if number is None:
            number = customer_get(tx, customer_id)
            if number is None:
                raise NotFound("customer", customer_id)
            self._remember({customer_id: number})
        return number

    def lookup_customer_key(self, customer_id: str) -> CustomerKey:
        """Return the key of an existing customer, read outside any transaction and cached."""
        number = self._cache.customers.get(customer_id)
        if number is None or self._bound is not None:
            number = self._store.read(lambda tx: self.customer_key(tx, customer_id))
        assert number is not None
        return number

    def pipeline(
        self, name: str, field: str = "pipeline_template", tx: Tx | None = None
    ) -> PipelineInfo:
        """Return a registered pipeline; raise InvalidInput with a similar name if there is none.

        Inside a transaction, pass it as `tx`: opening a second one could deadlock with the first.
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

    def is_in_use(self, pipeline: str, customer_ids: Iterable[str]) -> bool:
        """Return whether `use_pipeline` is known to need no statement for any of the customers."""
        info = self.pipeline(pipeline, "pipeline")
        if not info.unowned_tables:
            return True
        if self._bound is not None:
            return info.sole_customer == self._bound[1]
        known = {self._cache.customers.get(customer_id) for customer_id in customer_ids}
        return info.sole_customer is not None and known == {info.sole_customer}

    def use_pipeline(self, tx: Tx, info: PipelineInfo, customer_key: CustomerKey) -> None:
        """Raise Conflict for a second customer of a pipeline whose needs count all rows.

        Called wherever a customer may use a pipeline for the first time.
        """
        if not info.unowned_tables or info.sole_customer == customer_key:
            return
        sole = pipeline_claim(tx, info.pipeline_key, customer_key)
        tx.after_commit(self.invalidate)
        # A caller bound to one customer must not learn the name of another.
        is_named = self._bound is None and sole != customer_key
        names = customer_names(tx, [sole, customer_key]) if is_named else {}
        _check_sole_customer(info, sole, customer_key, names)

    def pipelines(self) -> list[PipelineInfo]:
        """Return all registered pipelines, ordered by name, from the store."""
        pipelines = self._read(None)
        return [pipelines[name] for name in sorted(pipelines)]

    def pipelines_in(self, tx: Tx) -> list[PipelineInfo]:
        """Return all registered pipelines, ordered by name, read in this transaction."""
        pipelines = self._read(tx)
        return [pipelines[name] for name in sorted(pipelines)]

    def cached_pipelines(self) -> Mapping[str, PipelineInfo]:
        """Return all registered pipelines by name, at most two seconds old."""
        declared = self._cache.declared
        if declared is None or self._clock.monotonic() >= declared.until:
            return self._read(None)
        return declared.pipelines

    def is_fair_clock_due(self, at: int, pace_us: int) -> bool:
        """Return whether a claim at this time must advance the fair clock: once per `pace_us`."""
        is_due = at - self._cache.clock_raised_at >= pace_us
        if is_due:
            self._cache.clock_raised_at = at
        return is_due

    def _read(self, tx: Tx | None) -> Mapping[str, PipelineInfo]:
        # The age counts from before the read, so that a registration during the read is seen in
        # time.
        until = self._clock.monotonic() + CACHE_TTL_S
        pipelines = self._store.read(_read_pipelines) if tx is None else _read_pipelines(tx)
        self._cache.declared = _Declared(pipelines, until)
        return pipelines

    def _own(self, customer_id: str) -> CustomerKey:
        """Return the bound customer's key; raise NotFound for any other customer."""
        assert self._bound is not None
        if check_customer(customer_id) != self._bound[0]:
            raise NotFound("customer", customer_id)
        return CustomerKey(self._bound[1])

    def _remember(self, found: Mapping[str, CustomerKey]) -> None:
        if len(self._cache.customers) > CACHE_MAX:
            self._cache.customers = {}
        self._cache.customers.update(found)


def check_sole_customer(tx: Tx, info: PipelineInfo, customer_key: CustomerKey | None) -> None:
    """Raise Conflict if the needs of a pipeline would count the rows of another customer.

    For callers that change nothing; the others call `NameResolver.use_pipeline`.
    """
    if info.unowned_tables and info.sole_customer != customer_key:
        _check_sole_customer(info, pipeline_sole_get(tx, info.pipeline_key), customer_key, {})


def check_sole_user(
    tx: Tx, pipeline_key: PipelineKey, definition: Mapping[str, Any], users: Sequence[CustomerKey]
) -> None:
    """Raise Conflict if the needs of a new declaration would count the rows of several customers.

    users: those whose configs or flows use the pipeline, or two of them. The only one becomes the
    pipeline's only customer.
    """
    tables = unowned_tables(definition)
    if not tables or not users:
        return
    if len(users) > 1:
        names = customer_names(tx, users)
        served, fix = f"customer {names[users[0]]}", f"For {names[users[-1]]}, declare"
        raise _second_customer(definition["name"], tables, served, fix)
    pipeline_sole_put(tx, pipeline_key, users[0])


def _check_sole_customer(
    info: PipelineInfo,
    sole: CustomerKey | None,
    customer_key: CustomerKey | None,
    names: Mapping[CustomerKey, str],
) -> None:
    """`names`: ids of both customers, or empty if the caller may not know them."""
    if sole is None or sole == customer_key:
        return
    other, own = names.get(sole), None if customer_key is None else names.get(customer_key)
    served, fix = "another customer", "Declare"
    if other is not None and own is not None:
        is_near = bool(difflib.get_close_matches(own, [other], n=1))
        served = f"customer {other}"
        fix = f"{f'Did you mean {other!r}? ' if is_near else ''}For {own}, declare"
    raise _second_customer(info.name, info.unowned_tables, served, fix)


def _second_customer(pipeline: str, unowned: Sequence[str], served: str, fix: str) -> Conflict:
    """Return the refusal of a second customer of a pipeline."""
    tables = ", ".join(unowned[:3])
    more = len(unowned) - 3
    return Conflict(
        f"Pipeline {pipeline} serves {served}, and its needs ({tables}"
        f"{f' and {more} more' if more > 0 else ''}) count the rows of all customers. {fix} "
        "customer_column= on the pipeline or on these needs, or shared=True for data that all "
        "customers have in common, and register it again."
    )


def check_limit(limit: object, field: str = "limit", most: int = PAGE_MAX) -> None:
    """Raise InvalidInput unless `limit` is from 1 to `most`.

    A database would treat some other values, such as -1, as no limit.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInput(field, f"a whole number from 1 to {most}", limit)


def _read_pipelines(tx: Tx) -> dict[str, PipelineInfo]:
    processors = processor_list(tx)
    return {
        name: PipelineInfo(
            pipeline_key=number,
            name=name,
            definition=declared,
            processors=tuple(row for row in processors if row.pipeline_key == number),
            has_flow=has_flow,
            sole_customer=sole,
            unowned_tables=unowned_tables(declared),
        )
        for number, name, _, definition, has_flow, sole in pipeline_list(tx)
        for declared in (json.loads(definition),)
    }


def unowned_tables(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tables of needs that have neither a customer column nor `shared`."""
    if definition.get("customer_column"):
        return ()
    needs = [
        need
        for phase in definition["phases"]
        for processor in phase["processors"]
        for need in (*processor.get("needs", ()), *processor.get("outputs", ()))
    ]
    unowned = [n["table"] for n in needs if not n.get("shared") and not n.get("customer")]
    return tuple(dict.fromkeys(unowned))


def _how_to_register(known: list[str]) -> str:
    if not known:
        return "No pipeline is registered: start a worker or run `penstock pipelines register`."
    return f"Registered: {', '.join(known[:20])}."
