"""How much a test tries: `make test` a part of what `make test-all` tries."""

import os
from typing import Final, TypeVar

T = TypeVar("T")

IS_FULL: Final = os.environ.get("PENSTOCK_TEST_FULL") == "1"


def effort(brief: T, full: T) -> T:
    """Return `full` in `make test-all`, else `brief`."""
    return full if IS_FULL else brief
