"""The share of capacity that a customer gets: its weight and its maximum number of runs. Pure."""

from __future__ import annotations

import math
from typing import Final

from penstock.core.errors import InvalidInput
from penstock.core.naming import LIMIT_CAPACITY_MAX

WEIGHT_MIN, WEIGHT_MAX = 0.1, 100.0
STRIDE: Final = 1_000_000
"""Amount that a run adds to the fair rank of a customer with weight 1."""


def stride_of(weight: float) -> int:
    """Return the amount that a run adds to its customer's fair rank: less for a greater weight."""
    return round(STRIDE / weight)


def check_weight(weight: object) -> float:
    """Return the weight of a customer; raise InvalidInput if it is out of bounds."""
    if (
        isinstance(weight, bool)
        or not isinstance(weight, int | float)
        or not math.isfinite(weight)
        or not WEIGHT_MIN <= weight <= WEIGHT_MAX
    ):
        expected = f"a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}"
        raise InvalidInput("weight", expected, weight, "1 is the weight of other customers.")
    return float(weight)


def check_concurrency(concurrency: object) -> int | None:
    """Return a customer's maximum number of runs; None for no maximum."""
    if concurrency is None:
        return None
    if (
        isinstance(concurrency, bool)
        or not isinstance(concurrency, int)
        or not 1 <= concurrency <= LIMIT_CAPACITY_MAX
    ):
        expected = f"a whole number from 1 to {LIMIT_CAPACITY_MAX:,}, or null"
        fix = "To stop a customer's runs, pause the customer."
        raise InvalidInput("concurrency", expected, concurrency, fix)
    return concurrency
