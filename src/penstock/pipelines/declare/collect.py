"""Collecting: many items of one kind are handed to one call, and each has an outcome of its own.

    @processor(collect=Collect(max=30, wait="5s"))
    def load(runs):                      # a list of 1 to 30 items, in order
        return [store(run) for run in runs]

A call begins when `max` items are there, or `wait` after the first of them. It answers None (all
of them are done) or a list with one entry per item, in order: what a handler of that one item
would have returned, or the exception it would have raised. A call that raises has failed for all.
Runs and messages share this; nothing here knows a queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from penstock.core.clock import Micros, format_duration, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput, shown

MAX_ITEMS: Final = 1000
MAX_WAIT: Final = "60s"


@dataclass(frozen=True, slots=True, init=False)
class Collect:
    """How many items one call gets at most, and how long the first of them waits for the rest."""

    max: int
    wait_us: Micros

    def __init__(self, max: int = 30, wait: str | int | float | timedelta = "5s") -> None:
        """At most `max` items, `wait` after the first; DeclarationError names what is wrong."""
        try:
            wait_us = parse_duration(wait, "collect.wait")
        except InvalidInput as error:
            raise DeclarationError(error.message) from None
        self._set(max, wait_us)

    def _set(self, most: object, wait_us: Micros) -> None:
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_ITEMS:
            raise DeclarationError(f"collect.max is 1 to {MAX_ITEMS}, got {shown(most)}.")
        if not 0 <= wait_us <= parse_duration(MAX_WAIT):
            raise DeclarationError(
                f"collect.wait is at most {MAX_WAIT}, got {format_duration(wait_us)}."
            )
        object.__setattr__(self, "max", most)
        object.__setattr__(self, "wait_us", wait_us)

    @classmethod
    def from_fields(cls, max: int, wait_us: Micros) -> Collect:
        """A record as it was written."""
        made = cls.__new__(cls)
        made._set(max, wait_us)
        return made


def each(answer: object, n: int) -> list[object]:
    """Return the outcome of each of `n` items: a value, or the exception it failed with."""
    if answer is None:
        return [None] * n
    if isinstance(answer, str | bytes) or not isinstance(answer, Sequence):
        wrong: object = f"{type(answer).__name__}"
    elif len(answer) != n:
        wrong = f"{len(answer)} entries"
    else:
        return list(answer)
    error = InvalidInput("outcome", f"None or a list of {n} outcomes, one per item", wrong)
    return [error] * n
