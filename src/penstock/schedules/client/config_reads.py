"""Use cases that read configs: lists, previews, audit trail, missed occurrences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.clock import FAR_FUTURE, MINUTE, request_time
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.core.records.parameters import ConfigId, Customer, CustomerFilter, PipelineFilter
from penstock.core.records.record import Page
from penstock.db.store import Transactions, Tx
from penstock.schedules.client.due import WINDOW_MAX, DueRow, due_list, due_record
from penstock.schedules.client.parameters import (
    PREVIEW_MAX,
    AfterConfig,
    ConfigFilter,
    ConfigHealthFilter,
    ConfigOrder,
    CustomerPrefix,
    DueBefore,
    IsActive,
    IsFailing,
    PageOffset,
    PreviewCount,
    WindowEnd,
    WindowStart,
)
from penstock.schedules.description import cadence_of
from penstock.schedules.from_rows import audit_record, config_record, missed_record, preview_record
from penstock.schedules.preview import preview_occurrences
from penstock.schedules.records import (
    AuditEntry,
    DueConfig,
    MissedOccurrences,
    SchedulePreview,
    StoredConfig,
)
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import (
    AuditRow,
    ConfigRowFilter,
    audit_list,
    config_get,
    config_list,
    config_list_failing,
    config_list_named,
    config_list_next,
    config_list_with_health,
)
from penstock.schedules.store.schedule import LedgerEntry, ledger_list

__all__ = ["ConfigReads", "config_number", "existing"]


class ConfigFilters(TypedDict, total=False):
    """Filters and order of configs; one that is omitted or None matches all."""

    pipeline: PipelineFilter
    customer_prefix: CustomerPrefix
    is_active: IsActive
    is_failing: IsFailing
    health: ConfigHealthFilter
    due_before: DueBefore
    sort: ConfigOrder


class ConfigReads:
    """Use cases that read configs."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def get(self, config_id: ConfigId) -> StoredConfig:
        """Return one config. A deleted config is not found."""
        number = config_number(config_id)
        return config_record(self._store.read(lambda tx: self._found(tx, number)))

    def list(
        self,
        *,
        customer: CustomerFilter = None,
        after: AfterConfig = None,
        limit: PageLimit = 50,
        offset: PageOffset = 0,
        cursor: Cursor = None,
        **filters: Unpack[ConfigFilters],
    ) -> Page[StoredConfig]:
        """List the configs of all customers that the caller may access, oldest first.

        With `due_before` or `sort=next_run_time`, only configs with a next start, soonest first.
        """
        begin = 0 if after is None else config_number(after)
        is_next = filters.get("sort") == "next_run_time" or filters.get("due_before") is not None
        for name in ("is_failing", "health"):
            if is_next and filters.get(name):
                raise InvalidInput(name, "no sort by next_run_time", filters.get(name))
        if filters.get("is_failing") and filters.get("health"):
            raise InvalidInput("health", "no is_failing", filters.get("health"))

        def read(place: Sequence[Any] | None) -> Sequence[ConfigRow]:
            skipped = 0 if place else offset
            check_limit(limit + skipped)
            return self._store.read(
                lambda tx: self._rows(tx, customer, filters, place or [begin], limit + skipped)
            )[skipped:]

        return paged(
            self._names,
            "configs",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.config_id, row.next_run_time or 0, row.customer_id],
            record=config_record,
            filters={"customer": customer, **filters},
        )

    def _rows(
        self,
        tx: Tx,
        customer: str | None,
        filters: ConfigFilters,
        place: Sequence[Any],
        limit: int,
    ) -> Sequence[ConfigRow]:
        pipeline, due_before = filters.get("pipeline"), filters.get("due_before")
        health = filters.get("health")
        info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
        wanted = ConfigRowFilter(
            customer_key=self._names.customer_key(tx, customer),
            pipeline_key=None if info is None else info.pipeline_key,
            is_active=filters.get("is_active"),
            customer_prefix=filters.get("customer_prefix"),
            after=place[0],
            limit=limit,
        )
        if filters.get("is_failing"):
            return config_list_failing(tx, **wanted)
        if health is not None:
            return config_list_with_health(tx, health, **wanted)
        if filters.get("sort") != "next_run_time" and due_before is None:
            if filters.get("customer_prefix"):
                last = place[2] if len(place) > 2 else _customer_of(tx, wanted)
                return config_list_named(tx, after_customer=last, **wanted)
            return config_list(tx, **wanted)
        return config_list_next(
            tx,
            after_time=place[1] if len(place) > 1 else 0,
            due_before=FAR_FUTURE if due_before is None else request_time(due_before, "due_before"),
            **wanted,
        )

    def list_of(
        self,
        customer: Customer,
        *,
        after: AfterConfig = None,
        limit: PageLimit = 50,
        offset: PageOffset = 0,
        cursor: Cursor = None,
        **filters: Unpack[ConfigFilters],
    ) -> Page[StoredConfig]:
        """List the configs of a customer, oldest first."""
        return self.list(
            customer=customer, after=after, limit=limit, offset=offset, cursor=cursor, **filters
        )

    def preview(self, config_id: ConfigId, n: PreviewCount = 5) -> SchedulePreview:
        """Return the next occurrences of a config, with mode, partition and effects of clock
        changes.
        """
        check_limit(n, "n", PREVIEW_MAX)
        number = config_number(config_id)
        config, now = self._store.read(lambda tx: (self._found(tx, number), tx.now()))
        cadence = cadence_of(config)
        if cadence is None:
            return SchedulePreview(occurrences=[])
        anchor = config.next_run_time or config.created_at
        info = self._names.pipeline(config.pipeline)
        return preview_record(preview_occurrences(cadence, now, n, anchor), info, config.timezone)

    def due(
        self,
        at: WindowStart,
        until: WindowEnd = None,
        *,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[DueConfig]:
        """List the active configs that fire in a window of time, by config id."""
        begin = request_time(at, "at")
        end = begin + MINUTE if until is None else request_time(until, "until")
        if not begin < end <= begin + WINDOW_MAX:
            raise InvalidInput("until", "a time at most 32 days after `at`", until)

        def body(tx: Tx, after: int) -> Sequence[DueRow]:
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            return due_list(
                tx,
                (begin, end),
                customer_key=self._names.customer_key(tx, customer),
                pipeline_key=None if info is None else info.pipeline_key,
                after=after,
                limit=limit,
            )

        return paged(
            self._names,
            "configs.due",
            lambda place: self._store.read(lambda tx: body(tx, place[0] if place else 0)),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.config.config_id],
            record=due_record,
            filters={"at": at, "until": until, "customer": customer, "pipeline": pipeline},
        )

    def audit_of(
        self, config_id: ConfigId, *, limit: PageLimit = 50, cursor: Cursor = None
    ) -> Page[AuditEntry]:
        """List the audited changes of a config, oldest first; deleted configs keep theirs."""
        number = config_number(config_id)

        def body(tx: Tx, after: int) -> Sequence[AuditRow]:
            config = config_get(tx, number, self._names.customer_key(tx, None))
            if config is None:
                raise NotFound("config", encode("cfg", number))
            owner = config.customer_key
            return audit_list(tx, owner, config_id=number, after=after, limit=limit)

        return paged(
            self._names,
            "configs.audit_of",
            lambda place: self._store.read(lambda tx: body(tx, place[0] if place else 0)),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.n],
            record=audit_record,
            filters={"config_id": number},
        )

    def audit(
        self,
        customer: Customer,
        *,
        config_id: ConfigFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[AuditEntry]:
        """List the audit chain of a customer, oldest first."""
        number = None if config_id is None else config_number(config_id)

        def body(tx: Tx, after: int) -> Sequence[AuditRow]:
            owner = self._names.customer_key(tx, customer)
            assert owner is not None
            return audit_list(tx, owner, config_id=number, after=after, limit=limit)

        return paged(
            self._names,
            "configs.audit",
            lambda place: self._store.read(lambda tx: body(tx, place[0] if place else 0)),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.n],
            record=audit_record,
            filters={"customer": customer, "config_id": number},
        )

    def occurrences(
        self, config_id: ConfigId, *, limit: PageLimit = 50, cursor: Cursor = None
    ) -> Page[MissedOccurrences]:
        """List occurrences of a config that did not start, newest first."""
        number = config_number(config_id)

        def body(tx: Tx, before: int) -> Sequence[LedgerEntry]:
            self._found(tx, number)
            return ledger_list(tx, number, limit, before)

        return paged(
            self._names,
            "configs.occurrences",
            lambda place: self._store.read(lambda tx: body(tx, place[0] if place else 2**62)),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.slot_from],
            record=missed_record,
            filters={"config_id": number},
        )

    def _found(self, tx: Tx, number: int) -> ConfigRow:
        return existing(config_get(tx, number, self._names.customer_key(tx, None)), number)


def config_number(config_id: str) -> int:
    """Return the number of a public id; raise NotFound if it is malformed."""
    try:
        return decode("cfg", config_id)
    except InvalidInput:
        raise NotFound("config", config_id) from None


def existing(found: ConfigRow | None, number: int) -> ConfigRow:
    """Return a row; raise NotFound if it is missing or deleted."""
    if found is None or found.deleted_at is not None:
        raise NotFound("config", encode("cfg", number))
    return found


def _customer_of(tx: Tx, wanted: ConfigRowFilter) -> str:
    """Return the customer of the config that a list continues after; empty if there is none."""
    found = config_get(tx, wanted["after"], wanted["customer_key"])
    return "" if found is None else found.customer_id
