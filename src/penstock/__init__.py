"""Penstock: a durable run queue, scheduler and pipelines on SQLite or PostgreSQL.

This module is the public surface. Every name a user may rely on is listed in `__all__`; anything
else may change without notice. Names are loaded on first use, so importing the package is cheap: it
loads no driver and no service.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - run from a clone: pip refuses to install it
    found = f"{sys.version_info[0]}.{sys.version_info[1]}"
    raise SystemExit(
        f"Penstock needs Python 3.11 or newer, and this is {found}: install a newer one and name "
        "it with `make PYTHON=/path/to/python3.11` or `uv tool install --python 3.11`."
    )

from penstock.db import default_store
from penstock.exports import DISTRIBUTION, lazy_exports

if TYPE_CHECKING:
    from penstock.access.api_keys import Role
    from penstock.alerts.records import AlertSelection, NewSilence
    from penstock.assembly.database import connect
    from penstock.assembly.messaging.transports import open_transport
    from penstock.assembly.process import run_pending
    from penstock.client import Client
    from penstock.core.clock import from_datetime, to_datetime
    from penstock.core.error_classification import register as register_error
    from penstock.core.errors import (
        ApiError,
        ApiUnavailable,
        Conflict,
        DeclarationError,
        DuplicateRequest,
        Forbidden,
        InvalidInput,
        LeaseLost,
        LimitTimeout,
        NotFound,
        Overloaded,
        PenstockError,
        PermanentError,
        ProcessorError,
        RunCancelled,
        RunInterrupted,
        RunTimedOut,
        SchemaMismatch,
        SettingsError,
        SlotLost,
        StaleVersion,
        StoreBusy,
        StoreError,
        StoreUnavailable,
        TooManyRequests,
        TransientError,
        TransportUnavailable,
        Unauthorised,
    )
    from penstock.core.ids import decode as decode_id
    from penstock.core.ids import encode as encode_id
    from penstock.core.records.record import Page, encode_record
    from penstock.dead_letters.records import DeadLetterEdit, ReplayRequest
    from penstock.flows.gates.records import OverrideRequest
    from penstock.flows.records import Completeness, CompletionReport, FlowRequest
    from penstock.pipelines.declare.collect import Collect
    from penstock.pipelines.declare.each import upstream
    from penstock.pipelines.declare.needs import (
        Dependency,
        historical,
        optional,
        per,
        produced,
        same_day,
    )
    from penstock.pipelines.declare.pipeline import Phase, Pipeline
    from penstock.pipelines.mode import Mode, ModeOptions
    from penstock.pipelines.modes import game_day_modes
    from penstock.pipelines.partition import day, hour, month, text, week
    from penstock.recovery.records import (
        BackfillRequest,
        CancelRequest,
        ConfigEdit,
        FlowReplay,
    )
    from penstock.runs.external.records import (
        ClaimRequest,
        RunCompletion,
        RunFailure,
        RunHeartbeat,
        RunHolder,
        RunStart,
    )
    from penstock.runs.records import Run, RunDetail, Submission
    from penstock.runs.rows import MessageOrigin
    from penstock.schedules.records import Config, ConfigChange, NewConfig, StoredConfig
    from penstock.worker.context import RunContext
    from penstock.worker.result import Result

    __version__: str

__all__ = [
    "AlertSelection",
    "ApiError",
    "ApiUnavailable",
    "BackfillRequest",
    "CancelRequest",
    "ClaimRequest",
    "Client",
    "Collect",
    "Completeness",
    "CompletionReport",
    "Config",
    "ConfigChange",
    "ConfigEdit",
    "Conflict",
    "DeadLetterEdit",
    "DeclarationError",
    "Dependency",
    "DuplicateRequest",
    "FlowReplay",
    "FlowRequest",
    "Forbidden",
    "InvalidInput",
    "LeaseLost",
    "LimitTimeout",
    "MessageOrigin",
    "Mode",
    "ModeOptions",
    "NewConfig",
    "NewSilence",
    "NotFound",
    "Overloaded",
    "OverrideRequest",
    "Page",
    "PenstockError",
    "PermanentError",
    "Phase",
    "Pipeline",
    "ProcessorError",
    "ReplayRequest",
    "Result",
    "Role",
    "Run",
    "RunCancelled",
    "RunCompletion",
    "RunContext",
    "RunDetail",
    "RunFailure",
    "RunHeartbeat",
    "RunHolder",
    "RunInterrupted",
    "RunStart",
    "RunTimedOut",
    "SchemaMismatch",
    "SettingsError",
    "SlotLost",
    "StaleVersion",
    "StoreBusy",
    "StoreError",
    "StoreUnavailable",
    "StoredConfig",
    "Submission",
    "TooManyRequests",
    "TransientError",
    "TransportUnavailable",
    "Unauthorised",
    "__version__",
    "connect",
    "day",
    "decode_id",
    "encode_id",
    "encode_record",
    "from_datetime",
    "game_day_modes",
    "historical",
    "hour",
    "month",
    "open_transport",
    "optional",
    "per",
    "produced",
    "register_error",
    "run_pending",
    "same_day",
    "text",
    "to_datetime",
    "upstream",
    "week",
]

_HOMES = {
    "AlertSelection": "penstock.alerts.records",
    "ApiError": "penstock.core.errors",
    "ApiUnavailable": "penstock.core.errors",
    "ClaimRequest": "penstock.runs.external.records",
    "Client": "penstock.client",
    "Collect": "penstock.pipelines.declare.collect",
    "Completeness": "penstock.flows.records",
    "CompletionReport": "penstock.flows.records",
    "Config": "penstock.schedules.records",
    "ConfigChange": "penstock.schedules.records",
    "Conflict": "penstock.core.errors",
    "DeadLetterEdit": "penstock.dead_letters.records",
    "DeclarationError": "penstock.core.errors",
    "Dependency": "penstock.pipelines.declare.needs",
    "DuplicateRequest": "penstock.core.errors",
    "BackfillRequest": "penstock.recovery.records",
    "CancelRequest": "penstock.recovery.records",
    "ConfigEdit": "penstock.recovery.records",
    "FlowReplay": "penstock.recovery.records",
    "FlowRequest": "penstock.flows.records",
    "Forbidden": "penstock.core.errors",
    "InvalidInput": "penstock.core.errors",
    "LeaseLost": "penstock.core.errors",
    "LimitTimeout": "penstock.core.errors",
    "MessageOrigin": "penstock.runs.rows",
    "Mode": "penstock.pipelines.mode",
    "ModeOptions": "penstock.pipelines.mode",
    "NewConfig": "penstock.schedules.records",
    "NewSilence": "penstock.alerts.records",
    "NotFound": "penstock.core.errors",
    "Overloaded": "penstock.core.errors",
    "OverrideRequest": "penstock.flows.gates.records",
    "Page": "penstock.core.records.record",
    "PenstockError": "penstock.core.errors",
    "PermanentError": "penstock.core.errors",
    "Phase": "penstock.pipelines.declare.pipeline",
    "Pipeline": "penstock.pipelines.declare.pipeline",
    "ProcessorError": "penstock.core.errors",
    "ReplayRequest": "penstock.dead_letters.records",
    "Result": "penstock.worker.result",
    "Role": "penstock.access.api_keys",
    "Run": "penstock.runs.records",
    "RunCancelled": "penstock.core.errors",
    "RunCompletion": "penstock.runs.external.records",
    "RunContext": "penstock.worker.context",
    "RunDetail": "penstock.runs.records",
    "RunFailure": "penstock.runs.external.records",
    "RunHeartbeat": "penstock.runs.external.records",
    "RunHolder": "penstock.runs.external.records",
    "RunInterrupted": "penstock.core.errors",
    "RunStart": "penstock.runs.external.records",
    "RunTimedOut": "penstock.core.errors",
    "SchemaMismatch": "penstock.core.errors",
    "SettingsError": "penstock.core.errors",
    "SlotLost": "penstock.core.errors",
    "StaleVersion": "penstock.core.errors",
    "StoreBusy": "penstock.core.errors",
    "StoreError": "penstock.core.errors",
    "StoreUnavailable": "penstock.core.errors",
    "StoredConfig": "penstock.schedules.records",
    "Submission": "penstock.runs.records",
    "TooManyRequests": "penstock.core.errors",
    "TransientError": "penstock.core.errors",
    "TransportUnavailable": "penstock.core.errors",
    "Unauthorised": "penstock.core.errors",
    "connect": "penstock.assembly.database",
    "day": "penstock.pipelines.partition",
    "decode_id": "penstock.core.ids:decode",
    "encode_id": "penstock.core.ids:encode",
    "encode_record": "penstock.core.records.record",
    "from_datetime": "penstock.core.clock",
    "game_day_modes": "penstock.pipelines.modes",
    "historical": "penstock.pipelines.declare.needs",
    "hour": "penstock.pipelines.partition",
    "month": "penstock.pipelines.partition",
    "open_transport": "penstock.assembly.messaging.transports",
    "optional": "penstock.pipelines.declare.needs",
    "per": "penstock.pipelines.declare.needs",
    "produced": "penstock.pipelines.declare.needs",
    "register_error": "penstock.core.error_classification:register",
    "run_pending": "penstock.assembly.process",
    "same_day": "penstock.pipelines.declare.needs",
    "text": "penstock.pipelines.partition",
    "to_datetime": "penstock.core.clock",
    "upstream": "penstock.pipelines.declare.each",
    "week": "penstock.pipelines.partition",
}
"""Module that defines each public name."""

if not TYPE_CHECKING:  # type checkers see the imports above instead
    _load, _ = lazy_exports(__name__, _HOMES)

    def __getattr__(name: str) -> Any:
        """Load a public name on first use."""
        if name == "__version__":
            from importlib.metadata import version  # costs 50 ms and is rarely needed

            return version(DISTRIBUTION)
        return _load(name)

    def __dir__() -> list[str]:
        return sorted(__all__)


def _open_default_store() -> Any:
    """Open the store that the environment names, for code without a client."""
    # Assembly loads the drivers, so it is imported only if a default store is needed.
    return importlib.import_module("penstock.assembly.database").open_default_store()


default_store.opener = _open_default_store
