"""Declaring a pipeline: phases, their order, and the processors that do the work.

    nba = Pipeline("nba", timezone="America/New_York")
    raw = nba.phase("raw")
    analytics = nba.phase("analytics", after=raw)

    @analytics.processor(timeout="20m", retry={"max_attempts": 5})
    def player_game_summary(run): ...

A declaration is plain data: importing it does nothing, and a decorated function stays itself. Each
mistake is a DeclarationError that names it; `check` finds what only the whole can show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias, TypeVar, overload

from penstock.core.clock import parse_duration
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.model import DEFAULT_POOL
from penstock.core.parameters import Schema, schema_check
from penstock.core.processor import Body, Processor, Runs, kind_of, name_check
from penstock.core.retry import RetryConfig
from penstock.core.zone import check_timezone

Duration: TypeAlias = str | int | float | timedelta
F = TypeVar("F", bound=Body)

MAIN: Final = "main"
TIMEOUT_DEFAULT: Final = "60m"


class Phase:
    """A stage of a pipeline; made by `Pipeline.phase`."""

    __slots__ = ("_pipeline", "_processors", "after", "name")

    def __init__(self, pipeline: Pipeline, name: str, after: tuple[str, ...]) -> None:
        self.name = name
        self.after = after
        self._pipeline = pipeline
        self._processors: dict[str, Processor] = {}

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline it belongs to."""
        return self._pipeline

    @property
    def processors(self) -> tuple[Processor, ...]:
        """Its processors, in order of declaration."""
        return tuple(self._processors.values())

    @overload
    def processor(self, name: F, /) -> F: ...
    @overload
    def processor(
        self,
        name: str | None = None,
        *,
        pool: str = DEFAULT_POOL,
        timeout: Duration = TIMEOUT_DEFAULT,
        retry: Mapping[str, Any] | None = None,
        runs: Runs = "auto",
    ) -> Callable[[F], F]: ...
    def processor(
        self,
        name: str | Body | None = None,
        *,
        pool: str = DEFAULT_POOL,
        timeout: Duration = TIMEOUT_DEFAULT,
        retry: Mapping[str, Any] | None = None,
        runs: Runs = "auto",
    ) -> Any:
        """Declare a function as a processor of this phase; works with and without arguments.

        runs: where it executes; "auto" is a thread for `def`, the worker's event loop for
        `async def`; "process" is a child process, for work that keeps a core busy.
        """

        def declare(body: Body, given: str | None = None) -> Body:
            label = given or str(getattr(body, "__name__", "")).lower()
            kind = kind_of(f"{self._path}/{label}", body, runs)
            self._add(label, body, pool, timeout, retry, kind)
            return body

        if callable(name):
            return declare(name)
        return lambda body: declare(body, name)

    def external(
        self,
        name: str,
        *,
        pool: str = "external",
        timeout: Duration = TIMEOUT_DEFAULT,
        retry: Mapping[str, Any] | None = None,
    ) -> Processor:
        """Declare a processor that somebody outside executes (claimed over the API)."""
        return self._add(name, None, pool, timeout, retry, "external")

    @property
    def _path(self) -> str:
        return f"{self._pipeline.name}/{self.name}"

    def _add(
        self,
        name: str,
        body: Body | None,
        pool: str,
        timeout: Duration,
        retry: Mapping[str, Any] | None,
        runs: Runs,
    ) -> Processor:
        where = f"processor {self._path}/{name}"
        name_check(name, "processor", where)
        name_check(pool, "pool", where)
        if name in self._processors:
            raise DeclarationError(f"{where} is declared twice; give one of them another name.")
        try:
            timeout_us = parse_duration(timeout, "timeout")
            RetryConfig.parse(retry, "retry")
        except InvalidInput as error:
            raise DeclarationError(f"{where}: {error.message}") from None
        if timeout_us <= 0:
            raise DeclarationError(f"{where}: timeout must be longer than zero, got {timeout!r}.")
        made = Processor(
            pipeline=self._pipeline.name,
            phase=self.name,
            name=name,
            pool=pool,
            timeout_us=timeout_us,
            retry=None if retry is None else dict(retry),
            runs=runs,
            body=body,
        )
        self._processors[name] = made
        return made


class Pipeline:
    """A named graph of phases."""

    def __init__(
        self,
        name: str,
        *,
        timezone: str = "UTC",
        parameters: Schema | None = None,
        rate_second: float = 0.0,
        rate_gb: float = 0.0,
    ) -> None:
        """Declare a pipeline; the rates price a second of execution and a gigabyte processed."""
        name_check(name, "pipeline", "Pipeline(...)")
        try:
            self.timezone = check_timezone(timezone)
        except InvalidInput as error:
            raise DeclarationError(f"pipeline {name}: {error.message}") from None
        if parameters is not None:
            schema_check(parameters, f"pipeline {name}: parameters")
        for word, rate in (("rate_second", rate_second), ("rate_gb", rate_gb)):
            if not 0 <= rate < float("inf"):
                raise DeclarationError(f"pipeline {name}: {word} must be 0 or more, got {rate!r}.")
        self.name = name
        self.parameters = None if parameters is None else dict(parameters)
        self.rate_second = float(rate_second)
        self.rate_gb = float(rate_gb)
        self._phases: dict[str, Phase] = {}

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r})"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Its phases, in order of declaration."""
        return tuple(self._phases.values())

    @property
    def processors(self) -> tuple[Processor, ...]:
        """Every processor, phase by phase."""
        return tuple(p for phase in self._phases.values() for p in phase.processors)

    @property
    def has_flow(self) -> bool:
        """Whether a slot opens a flow: there is more than one processor."""
        return len(self.processors) > 1

    @property
    def digest(self) -> str:
        """Changes when, and only when, the declaration changes."""
        text = json.dumps(self.definition(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def phase(self, name: str, after: Phase | str | Sequence[Phase | str] | None = None) -> Phase:
        """Declare a phase that starts when the phases in `after` are complete."""
        where = f"phase {self.name}/{name}"
        name_check(name, "phase", where)
        if name in self._phases:
            raise DeclarationError(f"{where} is declared twice; give one of them another name.")
        if after is None:
            earlier: Sequence[Phase | str] = ()
        else:
            earlier = [after] if isinstance(after, Phase | str) else list(after)
        for item in earlier:
            if isinstance(item, Phase) and item.pipeline is not self:
                raise DeclarationError(
                    f"{where}: after names phase {item.name!r} of another pipeline "
                    f"({item.pipeline.name}); a phase follows phases of its own pipeline."
                )
            if not isinstance(item, Phase | str):
                raise DeclarationError(f"{where}: after takes phases or their names, got {item!r}.")
        names = [item.name if isinstance(item, Phase) else item for item in earlier]
        made = Phase(self, name, tuple(dict.fromkeys(names)))
        self._phases[name] = made
        return made

    @overload
    def processor(self, name: F, /) -> F: ...
    @overload
    def processor(
        self,
        name: str | None = None,
        *,
        pool: str = DEFAULT_POOL,
        timeout: Duration = TIMEOUT_DEFAULT,
        retry: Mapping[str, Any] | None = None,
        runs: Runs = "auto",
    ) -> Callable[[F], F]: ...
    def processor(self, name: Any = None, **options: Any) -> Any:
        """Declare a processor of a pipeline with one phase, which is called `main`."""
        if any(phase != MAIN for phase in self._phases):
            raise DeclarationError(
                f"pipeline {self.name} has phases: declare the processor on one of them, "
                "@phase.processor instead of @pipeline.processor."
            )
        main = self._phases.get(MAIN) or self.phase(MAIN)
        return main.processor(name, **options)

    def entry_processors(self) -> tuple[Processor, ...]:
        """The processors a new flow starts with: those of phases that follow nothing."""
        return tuple(p for phase in self.phases if not phase.after for p in phase.processors)

    def check(self) -> None:
        """Raise DeclarationError unless the whole makes sense; called before registration."""
        if not self._phases:
            raise DeclarationError(f"pipeline {self.name} has no phases and no processors.")
        for phase in self.phases:
            if not phase.processors:
                raise DeclarationError(f"phase {self.name}/{phase.name} has no processors.")
            for name in phase.after:
                if name not in self._phases:
                    known = ", ".join(self._phases)
                    raise DeclarationError(
                        f"phase {self.name}/{phase.name}: after names {name!r}, "
                        f"which is not a phase here; phases: {known}."
                    )
        try:
            TopologicalSorter({phase.name: phase.after for phase in self.phases}).prepare()
        except CycleError as error:
            ring = " → ".join(error.args[1])
            raise DeclarationError(
                f"pipeline {self.name}: the phases wait for each other: {ring}."
            ) from None

    def definition(self) -> dict[str, Any]:
        """The declaration as JSON, the same for equal declarations."""
        return {
            "name": self.name,
            "timezone": self.timezone,
            "parameters": self.parameters,
            "rate_second": self.rate_second,
            "rate_gb": self.rate_gb,
            "phases": [
                {
                    "name": phase.name,
                    "after": list(phase.after),
                    "processors": [processor.definition() for processor in phase.processors],
                }
                for phase in self.phases
            ],
        }
