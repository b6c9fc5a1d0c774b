"""What a processor may return when a plain mapping says too little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.runs.states import RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a run: how complete it is, a summary (JSON), and what was processed."""

    status: RunStatus | str = RunStatus.SUCCESS
    summary: Mapping[str, Any] | None = None
    records: int | None = None
    bytes: int | None = None
