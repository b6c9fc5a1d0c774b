"""Penstock: a durable run queue, scheduler and pipelines on SQLite or PostgreSQL.

This module is the public surface. Every name a user may rely on is listed in `__all__`; anything
else may change without notice. Names are loaded on first use, so importing the package is cheap: it
loads no driver and no service.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.assembly import connect, work_off
    from penstock.client import Client
    from penstock.client.runs import Submission
    from penstock.core.classify import register as register_error
    from penstock.core.collect import Collect
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
    from penstock.core.mode import Mode
    from penstock.core.needs import Dependency, historical, optional, per, same_day
    from penstock.core.pipeline import Phase, Pipeline
    from penstock.core.result import Result
    from penstock.engine.context import RunContext

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
    "same_day",
    "work_off",
]

_ERRORS = (
    "Conflict", "DeclarationError", "InvalidInput", "LeaseLost", "LimitTimeout", "NotFound",
    "PenstockError", "PermanentError", "ProcessorError", "RunCancelled", "RunInterrupted",
    "RunTimedOut", "SettingsError", "SlotLost", "StoreError", "TransientError",
)  # fmt: skip
_NEEDS = ("Dependency", "historical", "optional", "per", "same_day")
_MODULES = {
    **dict.fromkeys(_ERRORS, "core.errors"),
    **dict.fromkeys(_NEEDS, "core.needs"),
    "Client": "client",
    "Collect": "core.collect",
    "Mode": "core.mode",
    "Phase": "core.pipeline",
    "Pipeline": "core.pipeline",
    "Result": "core.result",
    "RunContext": "engine.context",
    "Submission": "client.runs",
    "connect": "assembly",
    "register_error": "core.classify",
    "work_off": "assembly",
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
