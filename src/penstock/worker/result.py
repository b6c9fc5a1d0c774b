"""The return value of a processor that reports more than a summary mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.runs.states import RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a run: its status, a summary (JSON), and the records and bytes processed."""

    status: RunStatus | str = RunStatus.SUCCESS
    summary: Mapping[str, Any] | None = None
    records: int | None = None
    bytes: int | None = None
