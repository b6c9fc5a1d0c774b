"""What a gate asks of whoever can look at data, and how much looking may cost.

The question only: `penstock.probes` answers it for real warehouses, tests answer it with sightings
of their own. The orchestrator and `gate check` are given a `Looker` and know nothing of probes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from penstock.core.clock import Micros
from penstock.flows.gates.evidence import Sighting
from penstock.pipelines.dependency import Dependency

SECONDS_EACH: Final = 10.0
SECONDS_OVERALL: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much looking may cost.

    seconds_each: for one dependency, counted from its start. seconds: for all of them, waiting for
    a free thread included. bytes_max: what a warehouse that bills by bytes may scan per statement.
    """

    seconds_each: float = SECONDS_EACH
    seconds: float = SECONDS_OVERALL
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a gate wants to know: dependencies (resolved) of one partition.

    customer and parameters are bound in the author's queries, by name. since: sightings begun
    before this time do not count, such as those from before the upstream phase completed.
    """

    dependencies: Sequence[Dependency]
    partition: str
    customer: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    since: Micros | None = None
    budget: Budget = field(default_factory=Budget)


Looker: TypeAlias = Callable[[Look], Sequence[Sighting]]
"""Answers one sighting per dependency, in their order; never raises."""


def unseeing(look: Look) -> list[Sighting]:
    """Answer for a process that was given nothing to look with: nothing was seen, and why."""
    error = "this process has no probes; run an orchestrator that has"
    return [Sighting(key=d.key, looked_at=0, error=error) for d in look.dependencies]
