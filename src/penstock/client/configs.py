"""Configs from the caller's side: create (one or ten thousand), change, enable, delete, preview.

Every change is one transaction: the config, its place on the clock and its audit link. A change
made on an old version is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.client.names import Names
from penstock.core.cadence import Cadence, CatchUp, Overlap, ScheduleType, next_after
from penstock.core.drafts import ConfigDraft, parse_draft
from penstock.core.errors import Conflict, InvalidInput, NotFound, StaleVersion
from penstock.core.ids import encode, stable_fraction
from penstock.core.model import Config, NewRun
from penstock.core.parameters import validate
from penstock.core.preview import Fire, preview
from penstock.store.alerts import alert_resolve
from penstock.store.api import Store, Tx
from penstock.store.configs import (
    AuditRow,
    Change,
    audit_append,
    audit_list,
    config_delete,
    config_get,
    config_health_reset,
    config_insert_many,
    config_list,
    config_lock,
    config_set_offset_many,
    config_update,
)
from penstock.store.ending import failing_key
from penstock.store.runs import run_insert_many
from penstock.store.schedule import (
    LedgerEntry,
    cadence_ensure,
    ledger_list,
    schedule_drop,
    schedule_get,
    schedule_put,
    schedule_put_many,
)

PREVIEW_MAX = 1_000


class Configs:
    """Use cases about configs."""

    def __init__(self, store: Store, names: Names, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def create(
        self, customer: str, given: Mapping[str, Any], *, reason: str = "", actor: str | None = None
    ) -> Config:
        """Create one config; it is on the clock when this returns."""
        return self.create_many([(customer, given)], reason=reason, actor=actor)[0]

    def create_many(
        self,
        wanted: Sequence[tuple[str, Mapping[str, Any]]],
        *,
        reason: str = "",
        actor: str | None = None,
    ) -> list[Config]:
        """Create configs in one transaction: all of them, or none."""
        drafts = [self._draft(given) for _, given in wanted]
        who = actor or self._actor
        ids = self._store.write(
            lambda tx: self._insert(tx, [c for c, _ in wanted], drafts, reason, who)
        )
        self._store.wake(["schedule"])
        return self._store.read(lambda tx: [_must(config_get(tx, i), i) for i in ids])

    def check(self, given: Mapping[str, Any]) -> ConfigDraft:
        """Check a config without creating it (a dry run)."""
        return self._draft(given)

    def get(self, config_id: int, customer: str | None = None) -> Config:
        """One config; a deleted one is not found."""
        found = self._store.read(
            lambda tx: config_get(tx, config_id, self._names.customer(tx, customer))
        )
        if found is None or found.deleted_at is not None:
            raise NotFound("config", encode("cfg", config_id))
        return found

    def page(
        self,
        *,
        customer: str | None = None,
        pipeline: str | None = None,
        is_active: bool | None = None,
        after: int = 0,
        limit: int = 50,
    ) -> list[Config]:
        """Configs in id order; `after` continues an earlier page."""
        number = None if pipeline is None else self._names.pipeline(pipeline, "pipeline").number
        return self._store.read(
            lambda tx: config_list(
                tx,
                customer=self._names.customer(tx, customer),
                pipeline=number,
                is_active=is_active,
                after=after,
                limit=limit,
            )
        )

    def update(
        self,
        config_id: int,
        given: Mapping[str, Any],
        *,
        version: int | None = None,
        reason: str = "",
        customer: str | None = None,
        actor: str | None = None,
    ) -> Config:
        """Change fields; with `version`, only when nobody changed the config since."""
        who = actor or self._actor

        def body(tx: Tx) -> Config:
            old = self._lock(tx, config_id, customer)
            if version is not None and version != old.version:
                raise StaleVersion("config", encode("cfg", config_id), version, old.version)
            draft = parse_draft(given, _as_draft(old))
            self._check_parameters(draft)
            action = "UPDATED"
            if draft.is_active != old.is_active:
                action = "ACTIVATED" if draft.is_active else "DEACTIVATED"
            self._replace(tx, old, draft, action, reason, who)
            return _must(config_get(tx, config_id), config_id)

        changed = self._store.write(body)
        self._store.wake(["schedule"])
        return changed

    def enable(
        self, config_id: int, *, reason: str = "", customer: str | None = None,
        actor: str | None = None,
    ) -> Config:  # fmt: skip
        """Switch a config on again and forget its failures; audited."""
        return self.update(
            config_id, {"is_active": True}, reason=reason, customer=customer, actor=actor
        )

    def disable(
        self, config_id: int, *, reason: str = "", customer: str | None = None,
        actor: str | None = None,
    ) -> Config:  # fmt: skip
        """Switch a config off; its slots are no longer evaluated."""
        return self.update(
            config_id, {"is_active": False}, reason=reason, customer=customer, actor=actor
        )

    def delete(
        self, config_id: int, *, reason: str = "", customer: str | None = None,
        actor: str | None = None,
    ) -> None:  # fmt: skip
        """Delete softly: it stops firing, its history stays."""
        who = actor or self._actor

        def body(tx: Tx) -> None:
            old = self._lock(tx, config_id, customer)
            schedule_drop(tx, config_id)
            config_delete(tx, config_id)
            change = Change(old.customer, "DELETED", config_id, who, reason, describe(old), None)
            audit_append(tx, [change])

        self._store.write(body)

    def start(
        self,
        config_id: int,
        *,
        message_id: str | None = None,
        trigger_source: str = "manual",
        customer: str | None = None,
        actor: str | None = None,
    ) -> list[int]:
        """Start a config now, outside its schedule (EVENT_DRIVEN ones start only so)."""
        who = actor or self._actor

        def body(tx: Tx) -> list[int]:
            config = self._lock(tx, config_id, customer)
            if not config.is_active:
                raise Conflict(
                    f"{encode('cfg', config_id)} is not active ({config.inactive_reason}): "
                    f"penstock configs enable {encode('cfg', config_id)}"
                )
            info = self._names.pipeline(config.pipeline)
            now = tx.now()
            news = [
                NewRun(
                    customer=config.customer,
                    processor=row.processor,
                    config_id=config_id,
                    slot=now,
                    priority=config.priority,
                    max_execution_us=config.max_execution_us,
                    sla_us=config.sla_us,
                    ordering_key=None
                    if config.overlap == Overlap.ALLOW
                    else f"config:{config_id}:{row.processor}",
                    trigger_source=trigger_source,
                    trigger_message_id=message_id,
                )
                for row in info.entries
            ]
            pools = sorted({f"runs:{row.pool}" for row in info.entries})
            tx.after_commit(lambda: self._store.wake(pools))
            return run_insert_many(tx, news, who)

        return self._store.write(body)

    def preview(self, config_id: int, n: int = 5, customer: str | None = None) -> list[Fire]:
        """The next fires of a config, with notes where daylight saving moved one."""
        if not 1 <= n <= PREVIEW_MAX:
            raise InvalidInput("n", f"from 1 to {PREVIEW_MAX}", n)
        config = self.get(config_id, customer)
        cadence = cadence_of(config)
        if cadence is None:
            return []
        now = self._store.read(lambda tx: tx.now())
        anchor = config.next_run_time or config.created_at
        return preview(cadence, now, n, anchor)

    def audit(
        self, customer: str, *, config_id: int | None = None, after: int = 0, limit: int = 100
    ) -> list[AuditRow]:
        """A customer's audit trail, oldest first."""

        def body(tx: Tx) -> list[AuditRow]:
            number = self._names.customer(tx, customer)
            assert number is not None
            return audit_list(tx, number, config_id=config_id, after=after, limit=limit)

        return self._store.read(body)

    def ledger(self, config_id: int, limit: int = 50) -> list[LedgerEntry]:
        """Slots of a config that did not start, newest first."""
        self.get(config_id)
        return self._store.read(lambda tx: ledger_list(tx, config_id, limit))

    def _draft(self, given: Mapping[str, Any]) -> ConfigDraft:
        draft = parse_draft(given)
        self._check_parameters(draft)
        return draft

    def _check_parameters(self, draft: ConfigDraft) -> None:
        info = self._names.pipeline(draft.pipeline)
        validate(info.definition.get("parameters"), json.loads(draft.parameters))

    def _lock(self, tx: Tx, config_id: int, customer: str | None) -> Config:
        number = self._names.customer(tx, customer)
        config_lock(tx, config_id)
        found = config_get(tx, config_id, number)
        if found is None or found.deleted_at is not None:
            raise NotFound("config", encode("cfg", config_id))
        return found

    def _insert(
        self, tx: Tx, customers: Sequence[str], drafts: Sequence[ConfigDraft], reason: str, who: str
    ) -> list[int]:
        numbers = self._names.customers(tx, set(customers))
        cadences = {d.cadence: cadence_ensure(tx, d.cadence) for d in drafts if d.cadence}
        now = tx.now()
        rows = [
            (
                numbers[customer], self._names.pipeline(d.pipeline).number, d.provider, d.domain,
                d.schedule_type.value, cadences.get(d.cadence) if d.cadence else None, d.timezone,
                d.event_topic, d.event_filter, d.parameters, d.retry, d.priority,
                d.max_execution_us, d.sla_us, d.catch_up.value, d.catch_up_window_us,
                d.overlap.value, d.jitter_us, d.is_active, who,
            )
            for customer, d in zip(customers, drafts, strict=True)
        ]  # fmt: skip
        ids = config_insert_many(tx, rows)
        assert len(ids) == len(drafts)
        config_set_offset_many(
            tx, [(i, _offset(i, d)) for i, d in zip(ids, drafts, strict=True) if d.jitter_us]
        )
        nexts: dict[Cadence, int] = {c: next_after(c, now, now) for c in cadences}
        schedule_put_many(
            tx,
            [
                (i, cadences[d.cadence], nexts[d.cadence], now, d.catch_up.value,
                 d.catch_up_window_us)
                for i, d in zip(ids, drafts, strict=True)
                if d.cadence and d.is_active
            ],
        )  # fmt: skip
        audit_append(
            tx,
            [
                Change(numbers[customer], "CREATED", i, who, reason, None, describe_draft(d))
                for customer, i, d in zip(customers, ids, drafts, strict=True)
            ],
        )
        return ids

    def _replace(
        self, tx: Tx, old: Config, draft: ConfigDraft, action: str, reason: str, who: str
    ) -> None:
        cadence = cadence_ensure(tx, draft.cadence) if draft.cadence else None
        params: dict[str, Any] = {
            name: getattr(draft, name)
            for name in ConfigDraft.__slots__
            if name not in ("pipeline", "cadence")
        }
        params |= {
            "config_id": old.config_id,
            "version": old.version,
            "cadence": cadence,
            "offset_us": _offset(old.config_id, draft),
            "inactive_reason": None if draft.is_active else (reason or "disabled by hand"),
        }
        for name in ("schedule_type", "catch_up", "overlap"):
            params[name] = params[name].value
        assert config_update(tx, params) is not None, "the row is locked"
        self._put_on_clock(tx, old, draft, cadence)
        if draft.is_active and not old.is_active:
            config_health_reset(tx, old.config_id)
            alert_resolve(tx, failing_key(old.config_id), who)
            alert_resolve(tx, f"config_disabled:{old.config_id}", who)
        before, after = describe(old), describe_draft(draft)
        changed = {k for k in after if before.get(k) != after[k]}
        change = Change(
            old.customer, action, old.config_id, who, reason,
            {k: before.get(k) for k in sorted(changed)}, {k: after[k] for k in sorted(changed)},
        )  # fmt: skip
        audit_append(tx, [change])

    def _put_on_clock(self, tx: Tx, old: Config, draft: ConfigDraft, cadence: int | None) -> None:
        """Keep the clock row in step: unchanged cadences keep their next fire."""
        row = schedule_get(tx, old.config_id)
        if cadence is None or draft.cadence is None or not draft.is_active:
            schedule_drop(tx, old.config_id)
            return
        now = tx.now()
        evaluated_to = now if row is None else max(row[2], 0)
        if row is not None and row[0] == cadence:
            next_run_time = row[1]
        else:
            evaluated_to = max(evaluated_to, now)
            next_run_time = next_after(draft.cadence, now, now)
        schedule_put(
            tx,
            {
                "config_id": old.config_id,
                "cadence": cadence,
                "next_run_time": next_run_time,
                "evaluated_to": evaluated_to,
                "catch_up": draft.catch_up.value,
                "window_us": draft.catch_up_window_us,
            },
        )


def cadence_of(config: Config) -> Cadence | None:
    """When a config fires; None for EVENT_DRIVEN."""
    if config.schedule_type == ScheduleType.EVENT_DRIVEN:
        return None
    return Cadence(
        cron=config.schedule_cron,
        timezone=config.timezone if config.schedule_cron else "UTC",
        interval_us=config.interval_us,
    )


def describe(config: Config) -> dict[str, Any]:
    """A config's settings as the API names them."""
    return describe_draft(_as_draft(config))


def describe_draft(draft: ConfigDraft) -> dict[str, Any]:
    """A draft's settings as the API names them."""
    interval = draft.cadence.interval_us if draft.cadence else None
    return {
        "pipeline_template": draft.pipeline,
        "provider": draft.provider,
        "domain": draft.domain,
        "schedule_type": draft.schedule_type.value,
        "schedule_cron": draft.cadence.cron if draft.cadence else None,
        "schedule_interval_minutes": interval / 60_000_000 if interval else None,
        "timezone": draft.timezone,
        "event_topic": draft.event_topic,
        "event_filter": draft.event_filter,
        "parameters": json.loads(draft.parameters),
        "retry_config": json.loads(draft.retry) if draft.retry else None,
        "priority": draft.priority,
        "max_execution_duration_minutes": draft.max_execution_us / 60_000_000,
        "sla_breach_threshold_minutes": draft.sla_us / 60_000_000,
        "catch_up": draft.catch_up.value,
        "catch_up_window_minutes": draft.catch_up_window_us / 60_000_000,
        "overlap": draft.overlap.value,
        "jitter_seconds": draft.jitter_us / 1_000_000,
        "is_active": draft.is_active,
    }


def _as_draft(config: Config) -> ConfigDraft:
    return ConfigDraft(
        pipeline=config.pipeline,
        provider=config.provider,
        domain=config.domain,
        schedule_type=ScheduleType(config.schedule_type),
        cadence=cadence_of(config),
        timezone=config.timezone,
        event_topic=config.event_topic,
        event_filter=config.event_filter,
        parameters=config.parameters,
        retry=config.retry,
        priority=config.priority,
        max_execution_us=config.max_execution_us,
        sla_us=config.sla_us,
        catch_up=CatchUp(config.catch_up),
        catch_up_window_us=config.catch_up_window_us,
        overlap=Overlap(config.overlap),
        jitter_us=config.jitter_us,
        is_active=config.is_active,
    )


def _offset(config_id: int, draft: ConfigDraft) -> int:
    return int(stable_fraction(config_id) * draft.jitter_us)


def _must(config: Config | None, config_id: int) -> Config:
    assert config is not None, config_id
    return config
