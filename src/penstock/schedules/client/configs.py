"""Use cases of configs: create (one or ten thousand), change, enable, delete, preview.

Every change is one transaction over the config, its schedule row and its audit entry. A change
based on an old version is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import structs

import penstock.schedules.client.config_changes as changes
from penstock.access.store.names import NameResolver, check_limit
from penstock.core.clock import format_duration
from penstock.core.errors import InvalidInput, NotFound, StaleVersion
from penstock.core.fields import check_customer
from penstock.core.ids import encode
from penstock.core.naming import runs_channel
from penstock.core.records.parameters import ConfigId, Customer
from penstock.db.store import Tx
from penstock.pipelines.parameters import validate
from penstock.pipelines.partition import partition_rule_of
from penstock.runs.rows import MessageOrigin
from penstock.schedules.client.bulk import (
    ITEMS_MAX,
    BulkItems,
    WantedConfig,
    create_outcomes,
)
from penstock.schedules.client.config_reads import ConfigReads, config_number, existing
from penstock.schedules.client.parameters import (
    PREVIEW_MAX,
    DeleteReason,
    DryRun,
    ExpectedVersion,
    IfMatch,
    PreviewCount,
    PreviewCron,
    PreviewInterval,
    PreviewZone,
    TriggerSource,
    WithConfigs,
)
from penstock.schedules.config_input import ConfigInput, given_fields, parse_config_input
from penstock.schedules.description import as_draft, describe
from penstock.schedules.from_rows import config_record, preview_record
from penstock.schedules.hooks import start_config
from penstock.schedules.preview import preview_occurrences, repeated_partition
from penstock.schedules.records import (
    BulkOutcome,
    ChangeReason,
    Config,
    ConfigChange,
    NewConfig,
    SchedulePreview,
    StartedRuns,
    StoredConfig,
)
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import (
    Change,
    audit_append,
    config_delete,
    config_get,
    config_get_like,
    config_lock,
)
from penstock.schedules.store.schedule import schedule_retire

__all__ = ["Configs"]

T = TypeVar("T")


class Configs(ConfigReads):
    """Use cases of configs."""

    def create(
        self, customer: Customer, config: Config, *, reason: ChangeReason = None
    ) -> StoredConfig:
        """Create a config for a customer. Its schedule is in effect when this returns."""
        draft = (check_customer(customer), self._draft(config))

        def body(tx: Tx) -> StoredConfig:
            (number,) = self._insert(tx, [draft], reason or "")
            return config_record(_must(config_get(tx, number), number))

        return self._created(body)

    def create_many(
        self, configs: Sequence[NewConfig], *, reason: str = ""
    ) -> Sequence[StoredConfig]:
        """Create configs in one transaction: all of them, or none.

        `reason` applies to configs without one.
        """
        drafts = self._drafts(configs)
        reasons = [reason if one.reason is None else one.reason for one in configs]

        def body(tx: Tx) -> Sequence[StoredConfig]:
            ids = self._insert(tx, drafts, reasons)
            return [config_record(_must(config_get(tx, i), i)) for i in ids]

        return self._created(body)

    def create_bulk(
        self,
        configs: Sequence[NewConfig],
        *,
        dry_run: DryRun = False,
        with_configs: WithConfigs = False,
    ) -> Sequence[BulkOutcome]:
        """Create up to 10,000 configs. Each item is created or rejected independently.

        A dry run validates every item and creates none; an outcome has the id of an active config
        that the item duplicates. `with_configs` returns each created config, not only its id.
        """
        if len(configs) > ITEMS_MAX:
            raise InvalidInput("body", f"at most {ITEMS_MAX:,} configs", f"{len(configs):,}")
        return self.create_part(configs, is_dry=dry_run, with_configs=with_configs)

    def create_part(
        self, items: BulkItems, *, start: int = 0, is_dry: bool = False, with_configs: bool = False
    ) -> Sequence[BulkOutcome]:
        """Create the valid items of a part of a bulk request in one transaction.

        An item that is an error is reported as rejected. `start` is the index of the first item.
        """
        wanted, outcomes = create_outcomes(items, start, self._checked)
        if is_dry:
            return self._with_duplicates(wanted, outcomes)
        if not wanted:
            return outcomes
        drafts = [(customer, draft) for _, customer, draft, _ in wanted]
        reasons = [reason for *_, reason in wanted]

        def body(tx: Tx) -> Sequence[BulkOutcome]:
            ids = self._insert(tx, drafts, reasons)
            for (index, *_), number in zip(wanted, ids, strict=True):
                made = (
                    config_record(_must(config_get(tx, number), number)) if with_configs else None
                )
                outcomes[index] = BulkOutcome(
                    index=start + index,
                    status="created",
                    config_id=encode("cfg", number),
                    config=made,
                )
            return outcomes

        return self._created(body)

    def _with_duplicates(
        self, wanted: Sequence[WantedConfig], outcomes: Sequence[BulkOutcome]
    ) -> Sequence[BulkOutcome]:
        """Add the ids of active configs that valid items duplicate, by one statement."""
        lists = (
            sorted({customer for _, customer, *_ in wanted}),
            sorted({draft.pipeline for _, _, draft, _ in wanted}),
            sorted({draft.parameters for _, _, draft, _ in wanted}),
            sorted({(d.cadence and d.cadence.cron) or "" for _, _, d, _ in wanted}),
        )
        rows = self._store.read(lambda tx: config_get_like(tx, *lists)) if wanted else []
        first: dict[tuple[object, ...], int] = {}
        for row in rows:
            first.setdefault((row.customer_id, *as_draft(row).start_key), row.config_id)
        same = {
            index: first[key]
            for index, customer, draft, _ in wanted
            if (key := (customer, *draft.start_key)) in first
        }
        return [
            structs.replace(outcome, config_id=encode("cfg", same[n])) if n in same else outcome
            for n, outcome in enumerate(outcomes)
        ]

    def check(self, config: Config) -> None:
        """Check a config without creating it (a dry run)."""
        self._draft(config)

    def update(
        self,
        config_id: ConfigId,
        change: ConfigChange,
        *,
        version: ExpectedVersion = None,
        reason: ChangeReason = None,
        if_match: IfMatch = None,
    ) -> StoredConfig:
        """Change fields of a config. An outdated `version` or ETag in `if_match` is rejected."""
        number, expected = config_number(config_id), _version(version, if_match)

        def body(tx: Tx) -> StoredConfig:
            old = self._locked(tx, number)
            _check_version(old, expected)
            draft = changed_draft(tx, self._names, old, change)
            if draft.is_active and not old.is_active:
                # Registration looks at active configs only.
                info = self._names.pipeline(draft.pipeline, tx=tx)
                self._names.use_pipeline(tx, info, old.customer_key)
            action = "UPDATED"
            if draft.is_active != old.is_active:
                action = "ACTIVATED" if draft.is_active else "DEACTIVATED"
            changes.replace(tx, old, draft, action, reason or "", self._actor)
            return config_record(_must(config_get(tx, number), number))

        return self._created(body)

    def enable(self, config_id: ConfigId, *, reason: str = "") -> StoredConfig:
        """Enable a config and reset its failure count; audited."""
        return self.update(config_id, ConfigChange(is_active=True), reason=reason)

    def disable(self, config_id: ConfigId, *, reason: str = "") -> StoredConfig:
        """Disable a config; its occurrences are no longer evaluated."""
        return self.update(config_id, ConfigChange(is_active=False), reason=reason)

    def delete(
        self,
        config_id: ConfigId,
        *,
        version: int | None = None,
        reason: DeleteReason = "",
        if_match: IfMatch = None,
    ) -> None:
        """Delete a config but keep its history. Later requests for it return 404."""
        number, expected = config_number(config_id), _version(version, if_match)

        def body(tx: Tx) -> None:
            old = self._locked(tx, number)
            _check_version(old, expected)
            schedule_retire(tx, number)
            config_delete(tx, number)
            changes.alerts_resolve(tx, number, self._actor)
            gone = describe(old)
            change = Change(old.customer_key, "DELETED", number, self._actor, reason, gone)
            audit_append(tx, [change])

        self._store.write(body)

    def start(
        self,
        config_id: ConfigId,
        *,
        trigger_source: TriggerSource = "manual",
        message_id: str | None = None,
    ) -> StartedRuns:
        """Start a config now. Conflict (409) if it is inactive or its `overlap` forbids it.

        EVENT_DRIVEN configs start only this way or by messages.
        """
        number = config_number(config_id)

        def body(tx: Tx) -> StartedRuns:
            config = self._locked(tx, number)
            info = self._names.pipeline(config.pipeline, tx=tx)
            pools = ["flows", *sorted({runs_channel(row.pool) for row in info.entries})]
            tx.after_commit(lambda: self._store.wake(pools))
            origin = None if message_id is None else MessageOrigin(message_id)
            ids = start_config(tx, config, info, self._actor, trigger_source, origin)
            return StartedRuns(run_ids=[encode("run", run_id) for run_id in ids])

        return self._store.write(body)

    def preview_of(
        self,
        *,
        cron: PreviewCron = None,
        interval: PreviewInterval = None,
        timezone: PreviewZone = "UTC",
        n: PreviewCount = 5,
    ) -> SchedulePreview:
        """Return the next occurrences of a schedule that is not saved."""
        check_limit(n, "n", PREVIEW_MAX)
        config = Config(pipeline="preview", cron=cron, interval=interval, timezone=timezone)
        draft = _parsed(given_fields(config))
        assert draft.cadence is not None, "it has no topic"
        now = self._store.read(lambda tx: tx.now())
        return preview_record(preview_occurrences(draft.cadence, now, n, now))

    def _created(self, body: Callable[[Tx], T]) -> T:
        """Create configs and wake the scheduler."""
        made = self._store.write(body)
        self._store.wake(["schedule"])
        return made

    def _insert(
        self, tx: Tx, drafts: Sequence[tuple[str, ConfigInput]], reason: str | Sequence[str]
    ) -> Sequence[int]:
        return changes.insert(tx, self._names, drafts, reason, self._actor)

    def _drafts(self, configs: Sequence[NewConfig]) -> Sequence[tuple[str, ConfigInput]]:
        found = []
        for config in configs:
            if not isinstance(config, NewConfig):
                raise InvalidInput("config", "a NewConfig", config)
            found.append((check_customer(config.customer), self._draft(config)))
        return found

    def _checked(self, config: NewConfig) -> tuple[str, ConfigInput, str]:
        """Check an item of a bulk request; return its customer, draft and reason."""
        own = self._names.customer_id
        if own is not None and config.customer != own:
            raise NotFound("customer", config.customer)
        draft = self._draft(config)
        reason = "bulk" if config.reason is None else config.reason
        return check_customer(config.customer), draft, reason

    def _draft(self, config: Config) -> ConfigInput:
        draft = _parsed(given_fields(config))
        _check_draft(self._names, draft)
        return draft

    def _locked(self, tx: Tx, number: int) -> ConfigRow:
        owner = self._names.customer_key(tx, None)
        config_lock(tx, number)
        return existing(config_get(tx, number, owner), number)


def changed_draft(tx: Tx, names: NameResolver, old: ConfigRow, change: ConfigChange) -> ConfigInput:
    """Return the config after a change; raise InvalidInput if the result is invalid."""
    before = as_draft(old)
    draft = _parsed(given_fields(change), before)
    _check_draft(names, draft, tx, before)
    return draft


def _check_draft(
    names: NameResolver, draft: ConfigInput, tx: Tx | None = None, old: ConfigInput | None = None
) -> None:
    """Check a config against the declaration of its pipeline: parameters and partitions."""
    info = names.pipeline(draft.pipeline, "pipeline", tx=tx)
    validate(info.definition.get("parameters"), json.loads(draft.parameters))
    is_enabled = old is not None and draft.is_active and not old.is_active
    if old is None or draft.cadence != old.cadence or is_enabled:
        _check_partitions(draft, info.definition)


def _check_partitions(draft: ConfigInput, definition: Mapping[str, Any]) -> None:
    """Reject a schedule that fires twice in one partition, unless the pipeline allows it."""
    rule = partition_rule_of(definition)
    if draft.cadence is None or rule is None or rule.repeats:
        return
    if repeated_partition(draft.cadence, rule) is None:
        return
    is_cron = draft.cadence.cron is not None
    raise InvalidInput(
        "cron" if is_cron else "interval",
        f"at most one occurrence per {rule.kind}, because {draft.pipeline} has partitions by "
        f"{rule.kind}",
        draft.cadence.cron if is_cron else format_duration(draft.cadence.interval_us or 0),
        f"To process a partition several times, declare {rule.kind}(..., repeats=True) in the "
        "pipeline; for smaller partitions, declare hour(...) or text(...).",
    )


def _version(version: int | None, etag: str | None) -> int | None:
    """Return the version that a change is based on, given as a number or as an ETag."""
    if etag is None or etag.strip() == "*":
        return version
    text = etag.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidInput("If-Match", 'the ETag of the config, such as "3"', etag)
    if version is not None and version != int(text):
        raise InvalidInput("version", "the same version as If-Match", version)
    return int(text)


def _check_version(config: ConfigRow, version: int | None) -> None:
    """Raise StaleVersion if a change is based on a version other than the current one."""
    if version is not None and version != config.version:
        raise StaleVersion("config", encode("cfg", config.config_id), version, config.version)


def _must(config: ConfigRow | None, config_id: int) -> ConfigRow:
    assert config is not None, config_id
    return config


_PYTHON_NAMES: Final = {one.encode_name: one.name for one in structs.fields(Config)}


def _parsed(given: Mapping[str, Any], base: ConfigInput | None = None) -> ConfigInput:
    """Validate the fields of a config; errors have the names of the record's fields."""
    try:
        return parse_config_input(given) if base is None else parse_config_input(given, base)
    except InvalidInput as error:
        error.rename(_PYTHON_NAMES)
        raise
