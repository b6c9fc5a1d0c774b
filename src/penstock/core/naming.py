"""The names of pipelines, phases, processors, modes and pools: one rule for all of them.

A name is safe in a path, a topic, an address and a command line. Declarations call this.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.core.errors import DeclarationError

DEFAULT_CUSTOMER = "default"
DEFAULT_POOL = "default"
EXTERNAL_POOL = "external"
LIMIT_CAPACITY_MAX: Final = 1_000_000
LIMIT_NAME_MAX: Final = 200
NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,62}", re.ASCII)


def name_check(name: object, kind: str, where: str) -> None:
    """Raise DeclarationError unless the name is one a pipeline, phase or processor may have."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise DeclarationError(
            f"{where}: {name!r:.80} is not a {kind} name; use a small letter, then at most 62 "
            "small letters, digits, '_', '.' or '-'."
        )
