"""The tick from outside.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class TriggerIn(TypedDict):
    """Tick now."""

    batch_size: NotRequired[int]  # Configs per batch.
    max_processing_time_seconds: NotRequired[float]  # The time budget.


class TriggerOut(TypedDict):
    """What the tick did."""

    status: Literal["completed", "out_of_time"]  # Whether everything due was started.
    total_configs_processed: int  # Configs that were due.
    total_runs_created: int  # Runs that were created.
    processing_time_seconds: float  # How long it took.
