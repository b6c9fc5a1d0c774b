"""Use cases of configs: create (one or ten thousand), change, enable, delete, preview.

Every change is one transaction over the config, its schedule row and its audit entry. A change
based on an old version is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import penstock.schedules.client.config_changes as changes
from penstock.access.store.names import NameResolver, check_limit
from penstock.core.errors import NotFound, StaleVersion
from penstock.core.fields import check_customer
from penstock.core.ids import encode
from penstock.db.store import Transactions, Tx
from penstock.pipelines.parameters import validate
from penstock.runs.rows import MessageOrigin
from penstock.schedules.config_input import ConfigInput, parse_config_input
from penstock.schedules.description import as_draft, cadence_of, describe
from penstock.schedules.hooks import start_config
from penstock.schedules.preview import Occurrence, preview_occurrences
from penstock.schedules.rows import Config
from penstock.schedules.store.configs import (
    AuditRow,
    Change,
    audit_append,
    audit_list,
    config_delete,
    config_get,
    config_list,
    config_lock,
)
from penstock.schedules.store.schedule import LedgerEntry, ledger_list, schedule_retire

PREVIEW_MAX = 1_000


class Configs:
    """Use cases of configs."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def create(
        self, customer: str, given: Mapping[str, Any], *, reason: str = "", actor: str | None = None
    ) -> Config:
        """Create one config; it is scheduled when this returns."""
        return self.create_many([(customer, given)], reason=reason, actor=actor)[0]

    def create_many(
        self,
        wanted: Sequence[tuple[str, Mapping[str, Any]]],
        *,
        reason: str | Sequence[str] = "",
        actor: str | None = None,
    ) -> list[Config]:
        """Create configs in one transaction: all of them, or none."""
        drafts = self._drafts(wanted)
        who = actor or self._actor

        def body(tx: Tx) -> list[Config]:
            ids = changes.insert(tx, self._names, drafts, reason, who)
            return [_must(config_get(tx, i), i) for i in ids]

        made = self._store.write(body)
        self._store.wake(["schedule"])
        return made

    def create_ids(
        self,
        wanted: Sequence[tuple[str, Mapping[str, Any]]],
        *,
        reason: str | Sequence[str] = "",
        actor: str | None = None,
    ) -> list[int]:
        """Create configs as `create_many` does, but return only their ids."""
        drafts = self._drafts(wanted)
        who = actor or self._actor
        ids = self._store.write(lambda tx: changes.insert(tx, self._names, drafts, reason, who))
        self._store.wake(["schedule"])
        return ids

    def check(self, given: Mapping[str, Any]) -> ConfigInput:
        """Check a config without creating it (a dry run)."""
        return self._draft(given)

    def get(self, config_id: int, customer: str | None = None) -> Config:
        """Return one config; raise NotFound if it is missing or deleted."""
        found = self._store.read(
            lambda tx: config_get(tx, config_id, self._names.customer_key(tx, customer))
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
        offset: int = 0,
    ) -> list[Config]:
        """Return configs in id order; `after` (an id) continues a page, `offset` skips rows."""
        check_limit(limit + offset)
        number = (
            None if pipeline is None else self._names.pipeline(pipeline, "pipeline").pipeline_key
        )
        return self._store.read(
            lambda tx: config_list(
                tx,
                customer_key=self._names.customer_key(tx, customer),
                pipeline_key=number,
                is_active=is_active,
                after=after,
                limit=limit + offset,
            )[offset:]
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
        """Change fields; raise StaleVersion if `version` is given and no longer current."""
        who = actor or self._actor

        def body(tx: Tx) -> Config:
            old = _lock(tx, self._names, config_id, customer)
            _check_version(old, version)
            draft = parse_config_input(given, as_draft(old))
            self._check_parameters(draft, tx)
            action = "UPDATED"
            if draft.is_active != old.is_active:
                action = "ACTIVATED" if draft.is_active else "DEACTIVATED"
            changes.replace(tx, old, draft, action, reason, who)
            return _must(config_get(tx, config_id), config_id)

        changed = self._store.write(body)
        self._store.wake(["schedule"])
        return changed

    def enable(
        self, config_id: int, *, reason: str = "", customer: str | None = None,
        actor: str | None = None,
    ) -> Config:  # fmt: skip
        """Enable a config and reset its failure count; audited."""
        return self.update(
            config_id, {"is_active": True}, reason=reason, customer=customer, actor=actor
        )

    def disable(
        self, config_id: int, *, reason: str = "", customer: str | None = None,
        actor: str | None = None,
    ) -> Config:  # fmt: skip
        """Disable a config; its occurrences are no longer evaluated."""
        return self.update(
            config_id, {"is_active": False}, reason=reason, customer=customer, actor=actor
        )

    def delete(
        self, config_id: int, *, version: int | None = None, reason: str = "",
        customer: str | None = None, actor: str | None = None,
    ) -> None:  # fmt: skip
        """Soft-delete a config: it stops firing and keeps its history; `version` as in `update`."""
        who = actor or self._actor

        def body(tx: Tx) -> None:
            old = _lock(tx, self._names, config_id, customer)
            _check_version(old, version)
            schedule_retire(tx, config_id)
            config_delete(tx, config_id)
            changes.alerts_resolve(tx, config_id, who)
            gone = describe(old)
            audit_append(tx, [Change(old.customer_key, "DELETED", config_id, who, reason, gone)])

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
        """Start a config now, outside its schedule; EVENT_DRIVEN configs start only this way.

        Raise Conflict if the config is disabled or its overlap policy allows no further run.
        """
        who = actor or self._actor

        def body(tx: Tx) -> list[int]:
            config = _lock(tx, self._names, config_id, customer)
            info = self._names.pipeline(config.pipeline, tx=tx)
            pools = ["flows", *sorted({f"runs:{row.pool}" for row in info.entries})]
            tx.after_commit(lambda: self._store.wake(pools))
            origin = None if message_id is None else MessageOrigin(message_id)
            return start_config(tx, config, info, who, trigger_source, origin)

        return self._store.write(body)

    def preview(self, config_id: int, n: int = 5, customer: str | None = None) -> list[Occurrence]:
        """Return the next `n` occurrences, with notes where daylight saving moved one."""
        check_limit(n, "n", PREVIEW_MAX)
        config = self.get(config_id, customer)
        cadence = cadence_of(config)
        if cadence is None:
            return []
        now = self._store.read(lambda tx: tx.now())
        anchor = config.next_run_time or config.created_at
        return preview_occurrences(cadence, now, n, anchor)

    def preview_of(self, given: Mapping[str, Any], n: int = 5) -> list[Occurrence]:
        """Return the next `n` occurrences of a schedule that is not saved."""
        check_limit(n, "n", PREVIEW_MAX)
        draft = parse_config_input({**given, "pipeline_template": "preview"})
        if draft.cadence is None:
            return []
        now = self._store.read(lambda tx: tx.now())
        return preview_occurrences(draft.cadence, now, n, now)

    def audit_of(
        self, config_id: int, *, customer: str | None = None, after: int = 0, limit: int = 100
    ) -> list[AuditRow]:
        """Return a config's audit trail, oldest first; deleted configs keep theirs."""
        check_limit(limit)

        def body(tx: Tx) -> list[AuditRow]:
            config = config_get(tx, config_id, self._names.customer_key(tx, customer))
            if config is None:
                raise NotFound("config", encode("cfg", config_id))
            owner = config.customer_key
            return audit_list(tx, owner, config_id=config_id, after=after, limit=limit)

        return self._store.read(body)

    def audit(
        self, customer: str, *, config_id: int | None = None, after: int = 0, limit: int = 100
    ) -> list[AuditRow]:
        """Return a customer's audit trail, oldest first."""
        check_limit(limit)

        def body(tx: Tx) -> list[AuditRow]:
            number = self._names.customer_key(tx, customer)
            assert number is not None
            return audit_list(tx, number, config_id=config_id, after=after, limit=limit)

        return self._store.read(body)

    def ledger(
        self,
        config_id: int,
        limit: int = 50,
        customer: str | None = None,
        *,
        before: int | None = None,
    ) -> list[LedgerEntry]:
        """Return occurrences that did not start, newest first; `before` continues a page."""
        check_limit(limit)
        self.get(config_id, customer)
        end = 2**62 if before is None else before
        return self._store.read(lambda tx: ledger_list(tx, config_id, limit, end))

    def _drafts(
        self, wanted: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[tuple[str, ConfigInput]]:
        return [(check_customer(customer), self._draft(given)) for customer, given in wanted]

    def _draft(self, given: Mapping[str, Any]) -> ConfigInput:
        draft = parse_config_input(given)
        self._check_parameters(draft)
        return draft

    def _check_parameters(self, draft: ConfigInput, tx: Tx | None = None) -> None:
        info = self._names.pipeline(draft.pipeline, tx=tx)
        validate(info.definition.get("parameters"), json.loads(draft.parameters))


def _lock(tx: Tx, names: NameResolver, config_id: int, customer: str | None) -> Config:
    number = names.customer_key(tx, customer)
    config_lock(tx, config_id)
    found = config_get(tx, config_id, number)
    if found is None or found.deleted_at is not None:
        raise NotFound("config", encode("cfg", config_id))
    return found


def _check_version(config: Config, version: int | None) -> None:
    """Raise StaleVersion if a change is based on a version other than the current one."""
    if version is not None and version != config.version:
        raise StaleVersion("config", encode("cfg", config.config_id), version, config.version)


def _must(config: Config | None, config_id: int) -> Config:
    assert config is not None, config_id
    return config
