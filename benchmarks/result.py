"""The result of a benchmark, printed as one JSON line on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure; `limit` is hand-written SQL in the same run, `ratio` the share of it."""

    bench: str
    engine: str
    value: float
    unit: str
    n: int
    limit: float | None = None
    ratio: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return the JSON line."""
        record: dict[str, Any] = {
            "bench": self.bench,
            "engine": self.engine,
            "value": rounded(self.value),
            "unit": self.unit,
            "limit": rounded(self.limit),
            "ratio": rounded(self.ratio),
            "n": self.n,
        }
        record.update({key: rounded(value) for key, value in self.extra.items()})
        return json.dumps(record)


def rounded(value: Any) -> Any:
    """Round numbers according to their size, to the precision that was measured."""
    if not isinstance(value, float):
        return value
    return round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample below which `share` of them lie (nearest rank)."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def print_progress(text: str) -> None:
    """Print progress to standard error, so that standard output stays JSON."""
    print(f"  {text}", file=sys.stderr, flush=True)
