"""Hooks from schedules to flows; connected in `penstock.wiring`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.access.store.names import PipelineInfo
from penstock.db.hooks import Hook, Provider
from penstock.db.store import Tx
from penstock.runs.rows import MessageOrigin
from penstock.schedules.rows import ConfigRow, DueOccurrence, OpenedFlows, StartPace
from penstock.schedules.store.pauses import PauseChange

start_config: Provider[[Tx, ConfigRow, PipelineInfo, str, str, MessageOrigin | None], list[int]] = (
    Provider("schedules.start_config")
)
"""Start a config outside its schedule: (tx, config, pipeline, actor, source, origin) → runs."""

on_resumed: Hook[[Tx, PauseChange, str]] = Hook("schedules.on_resumed")
"""A customer or pipeline was resumed by a caller: (tx, change, who had paused it)."""

open_flows: Provider[[Tx, Sequence[DueOccurrence], StartPace], OpenedFlows] = Provider(
    "schedules.open_flows"
)
"""Open and start the flows of occurrences whose pipelines have phases."""
