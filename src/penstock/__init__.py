"""Penstock: a durable run queue, scheduler and pipelines on SQLite or PostgreSQL.

This module is the public surface. Every name a user may rely on is listed in `__all__`; anything
else may change without notice. Names are loaded on first use, so importing the package is cheap: it
loads no driver and no service.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.db import default_store

if TYPE_CHECKING:
    from penstock.assembly.process import connect, run_pending
    from penstock.client import Client
    from penstock.core.error_classification import register as register_error
    from penstock.core.errors import (
        Conflict,
        DeclarationError,
        InvalidInput,
        LeaseLost,
        LimitTimeout,
        NotFound,
        PenstockError,
        PermanentError,
        ProcessorError,
        RunCancelled,
        RunInterrupted,
        RunTimedOut,
        SettingsError,
        SlotLost,
        StoreError,
        TransientError,
    )
    from penstock.pipelines.declare.collect import Collect
    from penstock.pipelines.declare.needs import Dependency, historical, optional, per, same_day
    from penstock.pipelines.declare.pipeline import Phase, Pipeline
    from penstock.pipelines.mode import Mode
    from penstock.runs.client.runs import Submission
    from penstock.worker.context import RunContext
    from penstock.worker.result import Result

    __version__: str


__all__ = [
    "Client",
    "Collect",
    "Conflict",
    "DeclarationError",
    "Dependency",
    "InvalidInput",
    "LeaseLost",
    "LimitTimeout",
    "Mode",
    "NotFound",
    "PenstockError",
    "PermanentError",
    "Phase",
    "Pipeline",
    "ProcessorError",
    "Result",
    "RunCancelled",
    "RunContext",
    "RunInterrupted",
    "RunTimedOut",
    "SettingsError",
    "SlotLost",
    "StoreError",
    "Submission",
    "TransientError",
    "__version__",
    "connect",
    "historical",
    "optional",
    "per",
    "register_error",
    "run_pending",
    "same_day",
]

_ERRORS = (
    "Conflict", "DeclarationError", "InvalidInput", "LeaseLost", "LimitTimeout", "NotFound",
    "PenstockError", "PermanentError", "ProcessorError", "RunCancelled", "RunInterrupted",
    "RunTimedOut", "SettingsError", "SlotLost", "StoreError", "TransientError",
)  # fmt: skip
_NEEDS = ("Dependency", "historical", "optional", "per", "same_day")
_MODULES = {
    **dict.fromkeys(_ERRORS, "core.errors"),
    **dict.fromkeys(_NEEDS, "pipelines.declare.needs"),
    "Client": "client",
    "Collect": "pipelines.declare.collect",
    "Mode": "pipelines.mode",
    "Phase": "pipelines.declare.pipeline",
    "Pipeline": "pipelines.declare.pipeline",
    "Result": "worker.result",
    "RunContext": "worker.context",
    "Submission": "runs.client.runs",
    "connect": "assembly.process",
    "register_error": "core.error_classification",
    "run_pending": "assembly.process",
}
"""Module that defines each public name."""

if not TYPE_CHECKING:  # type checkers see the imports above instead

    def __getattr__(name: str) -> Any:
        """Load a public name on first use."""
        if name == "__version__":
            from importlib.metadata import version  # costs 50 ms and is rarely needed

            return version("penstock")
        if name not in _MODULES:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        module = importlib.import_module(f"penstock.{_MODULES[name]}")
        value = getattr(module, "register" if name == "register_error" else name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)


def _open_default_store() -> Any:
    """Open the store that the environment names, for code that was handed no client."""
    # Assembly loads the drivers: only a program that needs a default store pays for it.
    return importlib.import_module("penstock.assembly.process").open_default_store()


default_store.opener = _open_default_store
