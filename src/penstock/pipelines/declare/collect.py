"""Batch collection: one call processes several items, and each item has its own outcome.

    @processor(collect=Collect(max=30, wait="5s"))
    def load(runs):                      # a list of 1 to 30 items, in order
        return [store(run) for run in runs]

A call starts when `max` items are available, or `wait` after the first of them arrived. It returns
None (all items succeeded) or a list with one entry per item, in order: the value that a handler of
the single item would have returned, or the exception that it would have raised. A call that raises
fails for all items. Runs and messages share this module; it does not depend on a queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from penstock.core.clock import Micros, format_duration, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput, short_repr

MAX_ITEMS: Final = 1000
MAX_WAIT: Final = "60s"


@dataclass(frozen=True, slots=True, init=False)
class Collect:
    """Maximum batch size of a call, and the maximum wait after the first item arrives."""

    max: int
    wait_us: Micros

    def __init__(self, max: int = 30, wait: str | int | float | timedelta = "5s") -> None:
        """Set the maximum number of items and the wait; DeclarationError names an invalid one."""
        try:
            wait_us = parse_duration(wait, "collect.wait")
        except InvalidInput as error:
            raise DeclarationError(error.message) from None
        object.__setattr__(self, "max", max)
        object.__setattr__(self, "wait_us", wait_us)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields; also called for a stored record, which is read without `__init__`."""
        if type(self.max) is not int or not 1 <= self.max <= MAX_ITEMS:
            expected = f"a whole number from 1 to {MAX_ITEMS}"
            raise DeclarationError(f"collect.max: expected {expected}, got {short_repr(self.max)}.")
        if not 0 <= self.wait_us <= parse_duration(MAX_WAIT):
            raise DeclarationError(
                f"collect.wait: expected at most {MAX_WAIT}, got {format_duration(self.wait_us)}."
            )


def item_outcomes(returned: object, n: int) -> list[object]:
    """Return the outcome of each of `n` items: its value, or the exception it failed with.

    If the call returned anything but None or a list of `n` entries, every item fails.
    """
    if returned is None:
        return [None] * n
    if isinstance(returned, str | bytes) or not isinstance(returned, Sequence):
        wrong: object = f"{type(returned).__name__}"
    elif len(returned) != n:
        wrong = f"{len(returned)} entries"
    else:
        return list(returned)
    error = InvalidInput("outcome", f"None or a list of {n} outcomes, one per item", wrong)
    return [error] * n
