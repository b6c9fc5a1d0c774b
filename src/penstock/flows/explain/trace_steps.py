"""Steps of a trace: what happened, and what has not happened."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.clock import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event of a trace.

    kind: message, delivery, flow, gate, execution, report, phase, dead_letter or end.
    """

    at: Micros
    kind: str
    flow_id: str
    phase: str | None
    processor: str | None
    text: str
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingStep:
    """A phase, run or delivery that has not started or not completed, and why."""

    flow_id: str | None
    phase: str | None
    text: str
    since: Micros | None = None
    until: Micros | None = None
