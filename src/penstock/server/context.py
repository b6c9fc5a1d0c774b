"""Dependencies of the API: the scheduler trigger and the options of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReport:
    """The result of a triggered scheduler tick."""

    due: int
    runs: int
    seconds: float
    is_complete: bool


Trigger: TypeAlias = Callable[[int | None, float], TickReport]
"""Runs a tick; takes the configs per batch (None for the setting) and the seconds it may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Options of the API; see the settings of the same names."""

    threads: int = 3
    inflight: int = 64
    worker_inflight: int = 100
    rate: float = 500.0
    body_max: int = 1_048_576
    connections: int = 2_000
    scheduler_token: str = ""
