"""The interface between gates and probes: which data to probe, and the budget for it.

`penstock.probes` implements it for real warehouses; tests return their own observations. The
orchestrator and `gate check` take a `Prober` and do not import any probes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from penstock.core.clock import Micros
from penstock.flows.gates.evidence import Observation
from penstock.pipelines.dependency import Dependency

DEPENDENCY_TIMEOUT_S: Final = 10.0
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBudget:
    """Time and cost bounds of a probe request.

    dependency_timeout_s: timeout of one dependency, counted from the start of its probe. timeout_s:
    timeout of the whole request, including the wait for a free thread. bytes_max: bytes that a
    warehouse billed by bytes may scan per statement; None is unlimited.
    """

    dependency_timeout_s: float = DEPENDENCY_TIMEOUT_S
    timeout_s: float = TIMEOUT_S
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """A probe request: the resolved dependencies of a gate, for one partition.

    customer and parameters (those that the runs receive) are bound by name in the pipeline's own
    queries. since:
    observations that began before this time are not reused, such as those from before the upstream
    phase completed.
    """

    dependencies: Sequence[Dependency]
    partition: str
    customer: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    since: Micros | None = None
    budget: ProbeBudget = field(default_factory=ProbeBudget)


Prober: TypeAlias = Callable[[ProbeRequest], Sequence[Observation]]
"""Returns one observation per dependency, in their order. Never raises."""


def no_probes(request: ProbeRequest) -> list[Observation]:
    """Return an observation with an error for each dependency; used by processes without probes."""
    error = "this process has no probes; run an orchestrator with probes"
    return [Observation(key=d.key, looked_at=0, error=error) for d in request.dependencies]
