"""Declaration of a pipeline: its phases, their order, and their processors.

    nba = Pipeline("nba", partition="game_date", timezone="America/New_York")
    raw = nba.phase("raw")
    analytics = nba.phase("analytics", after=raw, stragglers="20m")

    @analytics.processor(needs=[same_day("nba_raw.boxscores")], timeout="20m")
    def player_game_summary(run): ...

A declaration is plain data: importing it has no side effects, and decorators return the function
unchanged. An invalid declaration raises a DeclarationError that names the mistake; `check`
validates the pipeline as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, TypeVar, Unpack, overload

from penstock.core.clock import Duration, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.naming import DEFAULT_POOL, check_declared_name, http_pool
from penstock.core.retry import RetryConfig
from penstock.core.stored_json import to_json
from penstock.core.utc_offsets import check_timezone
from penstock.pipelines.declare.alert_rule import AlertFunction, DeclaredAlertRule, alert_rule
from penstock.pipelines.declare.declaration_options import (
    PhaseOptions,
    PipelineOptions,
    ProcessorOptions,
    parse_phase_options,
    parse_pipeline_options,
    parse_processor_options,
)
from penstock.pipelines.declare.endpoint import EndpointOptions, check_empty, parse_endpoint
from penstock.pipelines.declare.incremental import check_incremental
from penstock.pipelines.declare.processor import (
    ExecutionKind,
    Processor,
    ProcessorFunction,
    resolve_execution_kind,
)
from penstock.pipelines.declare.terms import PhaseSettings, ProcessorSettings
from penstock.pipelines.declare.validation import check_definition
from penstock.pipelines.mode import Mode
from penstock.pipelines.parameters import Schema, check_schema
from penstock.pipelines.plan import Need, Plan, modes_of, needs_of, plan_of

F = TypeVar("F", bound=ProcessorFunction)
ProcessorKind: TypeAlias = Literal["function", "http"]

MAIN: Final = "main"
DEFINITION_VERSION: Final = 2
"""Version of a definition's JSON. Since 2, it lists all modes of the pipeline."""


class HttpOptions(ProcessorOptions, EndpointOptions, total=False):
    """Options of an HTTP processor: those of its requests, its data and its limits."""


class AnyOptions(HttpOptions, total=False):
    """Options of a processor of any kind."""

    url: str
    """URL that runs are sent to; only with kind="http"."""


class Phase:
    """A stage of a pipeline; created by `Pipeline.phase`."""

    __slots__ = ("_pipeline", "_processors", "after", "name", "terms")

    def __init__(
        self, pipeline: Pipeline, name: str, after: tuple[str, ...], terms: PhaseSettings
    ) -> None:
        self.name = name
        self.after = after
        self.terms = terms
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
        timeout: Duration | None = None,
        retry: Mapping[str, Any] | None = None,
        runs: ExecutionKind = "auto",
        kind: ProcessorKind = "function",
        **options: Unpack[AnyOptions],
    ) -> Callable[[F], F]: ...
    def processor(
        self,
        name: str | ProcessorFunction | None = None,
        *,
        pool: str = DEFAULT_POOL,
        timeout: Duration | None = None,
        retry: Mapping[str, Any] | None = None,
        runs: ExecutionKind = "auto",
        kind: ProcessorKind = "function",
        **options: Unpack[AnyOptions],
    ) -> Any:
        """Declare a function as a processor of this phase; works with and without arguments.

        timeout: time after which a run ends in state TIMEOUT. The stricter of this and the config's
        `max_duration` applies; 60 minutes if neither is set. runs: where it executes. "auto" is a
        thread for `def` and the worker's event loop for `async def`; "process" is a child process,
        for CPU-bound work. `ProcessorOptions` in `pipelines.declare.declaration_options` describes
        the other options, such as `needs`. kind: with "http" and a `url`, equivalent to `http`.
        """
        if kind != "function" or "url" in options:
            if kind != "http" or (pool, runs) != (DEFAULT_POOL, "auto"):
                raise DeclarationError(
                    f"a processor of {self._path} with a url takes kind='http', and neither pool "
                    "nor runs, because its endpoint executes the runs."
                )
            given: dict[str, Any] = dict(options)
            return self.http(given.pop("url", None), name, timeout=timeout, retry=retry, **given)

        def declare(body: ProcessorFunction, given: str | None = None) -> ProcessorFunction:
            label = given or str(getattr(body, "__name__", "")).lower()
            kind = resolve_execution_kind(f"{self._path}/{label}", body, runs)
            terms = parse_processor_options(options, f"processor {self._path}/{label}")
            self._add(label, body, (pool, kind), timeout, retry, terms)
            return body

        if callable(name):
            return declare(name)
        return lambda body: declare(body, name)

    def http(
        self,
        url: str,
        name: str | ProcessorFunction | None = None,
        *,
        timeout: Duration | None = None,
        retry: Mapping[str, Any] | None = None,
        **options: Unpack[HttpOptions],
    ) -> Any:
        """Declare a processor whose runs are sent to a URL, as signed requests.

        Decorates a function without a body, which gives the processor its name and is returned
        unchanged; with a `name` it declares the processor immediately and returns it. url: URL that
        runs are sent to. timeout: time from the request to the result, in the reply or later.
        `EndpointOptions` in `pipelines.declare.endpoint` describes the options of requests.
        """
        known = HttpOptions.__optional_keys__
        if unknown := sorted(options.keys() - known):
            # Raise the error that Python raises for unknown keyword arguments.
            raise TypeError(
                f"HTTP processor of {self._path}: {unknown[0]!r} is not an option; "
                f"known: {', '.join(sorted({'timeout', 'retry', *known}))}"
            )
        given: dict[str, Any] = dict(options)
        own = {word: given.pop(word) for word in EndpointOptions.__optional_keys__ & given.keys()}

        def declare(label: str) -> Processor:
            where = f"processor {self._path}/{label}"
            endpoint = parse_endpoint(url, own, where)
            terms = replace(parse_processor_options(given, where), endpoint=endpoint)
            executor: tuple[str, ExecutionKind] = (http_pool(f"{self._path}/{label}"), "http")
            return self._add(label, None, executor, timeout, retry, terms)

        def decorate(body: F) -> F:
            label = str(getattr(body, "__name__", "")).lower()
            check_empty(body, f"processor {self._path}/{label}")
            declare(label)
            return body

        if isinstance(name, str):
            return declare(name)
        return decorate if name is None else decorate(name)

    def external(
        self,
        name: str,
        *,
        pool: str = "external",
        timeout: Duration | None = None,
        retry: Mapping[str, Any] | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> Processor:
        """Declare a processor whose runs an external worker claims over the API and executes."""
        terms = parse_processor_options(options, f"processor {self._path}/{name}")
        return self._add(name, None, (pool, "external"), timeout, retry, terms)

    @property
    def _path(self) -> str:
        return f"{self._pipeline.name}/{self.name}"

    def _add(
        self,
        name: str,
        body: ProcessorFunction | None,
        executor: tuple[str, ExecutionKind],
        timeout: Duration | None,
        retry: Mapping[str, Any] | None,
        terms: ProcessorSettings,
    ) -> Processor:
        pool, runs = executor
        where = f"processor {self._path}/{name}"
        check_declared_name(name, "processor", where)
        if runs != "http":
            check_declared_name(pool, "pool", where)
        if name in self._processors:
            raise DeclarationError(f"{where} is declared twice; give one of them another name.")
        try:
            timeout_us = None if timeout is None else parse_duration(timeout, "timeout")
            RetryConfig.parse(retry, "retry")
        except InvalidInput as error:
            raise DeclarationError(f"{where}: {error.message}") from None
        if timeout_us is not None and timeout_us <= 0:
            raise DeclarationError(f"{where}: timeout must be longer than zero, got {timeout!r}.")
        if terms.collect is not None and runs not in ("thread", "async"):
            raise DeclarationError(
                f"{where}: collect passes several runs to one call of a function in the worker, "
                f"which runs={runs!r} does not support; remove one of the two options."
            )
        made = Processor(
            pipeline=self._pipeline.name,
            phase=self.name,
            name=name,
            pool=pool,
            timeout_us=timeout_us,
            retry=None if retry is None else dict(retry),
            runs=runs,
            body=body,
            terms=terms,
        )
        self._processors[name] = made
        return made

    def definition(self) -> dict[str, Any]:
        """Return the phase as JSON values."""
        return {
            "name": self.name,
            "after": list(self.after),
            "processors": [processor.definition() for processor in self.processors],
            **to_json(self.terms),
        }


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
        **options: Unpack[PipelineOptions],
    ) -> None:
        """Declare a pipeline.

        parameters: JSON Schema of the parameters of its runs; None accepts any object.
        rate_second, rate_gb: price of a second of execution and of a gigabyte processed.
        `PipelineOptions` in `pipelines.declare.declaration_options` describes the other options.
        """
        check_declared_name(name, "pipeline", "Pipeline(...)")
        self.terms = parse_pipeline_options(options, f"pipeline {name}")
        try:
            self.timezone = check_timezone(timezone)
        except InvalidInput as error:
            raise DeclarationError(f"pipeline {name}: {error.message}") from None
        if parameters is not None:
            check_schema(parameters, f"pipeline {name}: parameters")
        for word, rate in (("rate_second", rate_second), ("rate_gb", rate_gb)):
            if not 0 <= rate < float("inf"):
                raise DeclarationError(f"pipeline {name}: {word} must be 0 or more, got {rate!r}.")
        self.name = name
        self.parameters = None if parameters is None else dict(parameters)
        self.rate_second = float(rate_second)
        self.rate_gb = float(rate_gb)
        self.alerts: list[DeclaredAlertRule] = []
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
        """Whether an occurrence starts a flow: there are several processors, gates or items."""
        return len(self.processors) > 1 or any(
            p.terms.needs or p.terms.each for p in self.processors
        )

    @property
    def modes(self) -> dict[str, Mode]:
        """Its modes by name, declared and built-in, with its SLOs applied."""
        return modes_of({"version": DEFINITION_VERSION, **to_json(self.terms)})

    @property
    def digest(self) -> str:
        """Hash of the declaration; differs if and only if the declaration differs."""
        text = json.dumps(self.definition(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def phase(
        self,
        name: str,
        after: Phase | str | Sequence[Phase | str] | None = None,
        **options: Unpack[PhaseOptions],
    ) -> Phase:
        """Declare a phase. It starts when the phases in `after` are complete and its gate proceeds.

        `PhaseOptions` in `pipelines.declare.declaration_options` describes the other options.
        """
        where = f"phase {self.name}/{name}"
        check_declared_name(name, "phase", where)
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
        made = Phase(self, name, tuple(dict.fromkeys(names)), parse_phase_options(options, where))
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
        timeout: Duration | None = None,
        retry: Mapping[str, Any] | None = None,
        runs: ExecutionKind = "auto",
        kind: ProcessorKind = "function",
        **options: Unpack[AnyOptions],
    ) -> Callable[[F], F]: ...
    def processor(self, name: Any = None, **options: Any) -> Any:
        """Declare a processor of a pipeline without explicit phases; its phase is named `main`."""
        if any(phase != MAIN for phase in self._phases):
            raise DeclarationError(
                f"pipeline {self.name} has phases: declare the processor on one of them, "
                "@phase.processor instead of @pipeline.processor."
            )
        main = self._phases.get(MAIN) or self.phase(MAIN)
        return main.processor(name, **options)

    def alert(self, name: str, **options: Any) -> Callable[[AlertFunction], AlertFunction]:
        """Declare an alert rule: the function measures a number that is compared with thresholds.

        info, medium, high, critical: threshold of each severity, at least one. hold: time for which
        a threshold must be reached. every: interval between measurements, 1 minute by default.
        message and command may contain `{value}`. The function takes a client and returns a number,
        or None.
        """

        def decorate(function: AlertFunction) -> AlertFunction:
            if any(one.name == name for one in self.alerts):
                raise DeclarationError(f"pipeline {self.name}: alert {name!r} is declared twice.")
            self.alerts.append(alert_rule(self.name, name, function, options))
            return function

        return decorate

    def entry_processors(self) -> tuple[Processor, ...]:
        """Return the processors that a new flow starts with: those of phases without `after`."""
        return tuple(p for phase in self.phases if not phase.after for p in phase.processors)

    def plan(self, mode: str) -> Plan:
        """Return the plan of a flow in this mode: its phases in order, with expected processors."""
        return plan_of(self.definition(), self.modes[mode])

    def needs(
        self, mode: str, phase: str, processor: str | None = None, *, outputs: bool = False
    ) -> tuple[Need, ...]:
        """Return the dependencies that the gate of a phase or processor probes in this mode.

        outputs: return the outputs that are probed after the phase has completed instead.
        """
        planned = next((p for p in self.plan(mode).phases if p.name == phase), None)
        names = () if planned is None else planned.expected if processor is None else (processor,)
        asked = [(p.name, p.terms) for p in self._phases[phase].processors if p.name in names]
        return needs_of(asked, mode, self.terms, outputs=outputs)

    def check(self) -> None:
        """Raise DeclarationError unless the whole pipeline is valid; called before registration."""
        definition = self.definition()
        check_definition(definition)
        check_incremental(definition)

    def definition(self) -> dict[str, Any]:
        """Return the declaration as JSON values, the same for equal declarations."""
        return {
            "version": DEFINITION_VERSION,
            "name": self.name,
            "timezone": self.timezone,
            "parameters": self.parameters,
            "rate_second": self.rate_second,
            "rate_gb": self.rate_gb,
            **to_json(self.terms),
            "phases": [phase.definition() for phase in self.phases],
        }
