"""The target of a manual trigger: its config, mode and partition, and the flows it replaces.

`opening.py` opens it and `trigger_preview.py` shows it, so that a dry run and the trigger itself
agree. Functions over a transaction that change nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.access.store.names import PipelineInfo
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.flows.records import FlowRequest
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import flow_find, flow_open_list
from penstock.pipelines.modes import MANUAL_SOURCE
from penstock.pipelines.plan import mode_and_partition
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import config_get, config_list

CONFIGS_SHOWN: Final = 10


class TriggerTarget(NamedTuple):
    """The flow that a trigger opens or returns."""

    config: ConfigRow | None
    """Config that the flow belongs to; None if the customer has none of this pipeline."""
    mode: str
    partition: str
    existing: FlowRow | None
    """Newest flow of the partition and mode; an open one takes precedence."""
    parent: FlowRow | None
    """Flow whose completed phases are inherited if the trigger names phases."""
    superseded: tuple[FlowRow, ...]
    """Older open flows of the same key, which the new generation replaces."""
    is_new: bool
    """Whether a flow is opened, instead of returning the existing one."""

    @property
    def config_id(self) -> int:
        """Key of the config, 0 without one."""
        return 0 if self.config is None else self.config.config_id


def trigger_target(
    tx: Tx,
    info: PipelineInfo,
    wanted: FlowRequest,
    customer_key: CustomerKey | None,
    *,
    source: str = MANUAL_SOURCE,
) -> TriggerTarget:
    """Return the target of a trigger. customer_key: None for a customer that does not exist yet.

    The flow belongs to the named config, else to the customer's only active config of the pipeline,
    else to the config of the partition's newest flow. A trigger that names no mode continues the
    newest flow of its partition: a second flow in another mode would do the same work twice.
    """
    config = config_of(tx, info, wanted, customer_key)
    zone = None if config is None else config.timezone
    mode, partition = mode_and_partition(
        info.definition,
        tx.now(),
        mode=wanted.mode,
        backfill=wanted.backfill,
        source=source,
        zone=zone,
    )
    partition = wanted.partition or partition
    if customer_key is None:
        return TriggerTarget(config, mode, partition, None, None, (), is_new=True)
    about = (customer_key, info.pipeline_key, partition)
    if config is None:
        newest = flow_find(tx, *about)
        if newest is not None and newest.config_id:
            config = config_get(tx, newest.config_id)
    config_id = 0 if config is None else config.config_id
    any_mode = flow_find(tx, *about, config_id=config_id)
    if any_mode is not None and wanted.mode is None and not wanted.backfill:
        mode = any_mode.mode
    existing = flow_find(tx, *about, mode, config_id=config_id)
    is_new = existing is None or wanted.force or bool(wanted.phases)
    older: tuple[FlowRow, ...] = ()
    if existing is not None and is_new and not wanted.keep_older:
        older = tuple(flow_open_list(tx, *about, mode, config_id))
    parent = (existing or any_mode) if wanted.phases else None
    return TriggerTarget(config, mode, partition, existing, parent, older, is_new)


def config_of(
    tx: Tx, info: PipelineInfo, wanted: FlowRequest, customer_key: CustomerKey | None
) -> ConfigRow | None:
    """Return the named config, or the only active one; raise InvalidInput if several are active."""
    if wanted.config is not None:
        number = decode_or_not_found("cfg", "config", wanted.config)
        found = None if customer_key is None else config_get(tx, number, customer_key)
        if found is None or found.deleted_at is not None:
            raise NotFound("config", wanted.config)
        if found.pipeline_key != info.pipeline_key:
            expected = f"a config of {info.name}"
            raise InvalidInput(
                "config", expected, wanted.config, f"It belongs to {found.pipeline}."
            )
        return found
    if customer_key is None:
        return None
    active = only_configs(tx, info, customer_key, CONFIGS_SHOWN + 1)
    if len(active) > 1:
        ids = ", ".join(encode("cfg", row.config_id) for row in active[:CONFIGS_SHOWN])
        raise InvalidInput(
            "config",
            f"one of the active configs of {info.name}: {ids}",
            None,
            f"Name the config that the flow belongs to: --config-id "
            f"{encode('cfg', active[0].config_id)}",
        )
    return active[0] if active else None


def only_configs(
    tx: Tx, info: PipelineInfo, customer_key: CustomerKey, limit: int = 2
) -> list[ConfigRow]:
    """Return active configs of a customer and pipeline, at most `limit`."""
    return config_list(
        tx,
        customer_key=customer_key,
        pipeline_key=info.pipeline_key,
        is_active=True,
        limit=limit,
    )
