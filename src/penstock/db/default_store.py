"""The default store, opened for a program that did not open one itself.

`penstock` sets `opener`; code below `assembly` calls it without naming a driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `import penstock` loads this module and must stay cheap
    from penstock.db.store import Store

DATABASE_VARIABLE = "PENSTOCK_DATABASE_URL"

opener: Callable[[], Store] | None = None


def open_default_store() -> Store:
    """Open and migrate the store that the environment's settings name."""
    if opener is None:
        raise RuntimeError("no opener is set: import penstock first")
    return opener()
