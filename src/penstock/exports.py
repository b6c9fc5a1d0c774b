"""The public surface: which modules user code may import, and how a package exports names lazily.

Names in the `__all__` of a public module are stable; everything else is private and may change.
`docs/reference/public-api.md` describes each name. Tests check that the documentation and the
examples import nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

DISTRIBUTION: Final = "penstock-engine"
"""Name on the package index; the import and the command are `penstock`."""

PUBLIC_MODULES: Final = (
    "penstock",
    "penstock.bus",
    "penstock.consumer",
    "penstock.sinks",
    "penstock.limits",
    "penstock.limits.bigquery",
    "penstock.probes",
    "penstock.remote",
    "penstock.testing",
    "penstock.demo.nba",
    "penstock.demo.saas",
)
"""Every public module, in the order of the reference page."""


def lazy_exports(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that loads its public names on first use.

    homes: module that defines each name, such as "penstock.bus.message". If the module uses another
    name for it, that name follows a colon: "penstock.core.ids:encode".
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        path, _, attribute = home.partition(":")
        value = getattr(importlib.import_module(path), attribute or name)
        setattr(importlib.import_module(module), name, value)  # the next access is a plain lookup
        return value

    def names() -> list[str]:
        return sorted(homes)

    return load, names
