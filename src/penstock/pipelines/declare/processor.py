"""Declaration of a processor: its name, pool, timeout and function.

`pipelines.declare.pipeline` creates processors; this module has the checks that only need the
function itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from penstock.core.clock import Micros
from penstock.core.errors import DeclarationError
from penstock.core.stored_json import to_json
from penstock.pipelines.declare.terms import ProcessorSettings

ProcessorFunction: TypeAlias = Callable[..., Any]
ExecutionKind: TypeAlias = Literal["auto", "thread", "async", "process", "external", "http"]

EXECUTION_KINDS: Final = ("auto", "thread", "async", "process", "external", "http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """Declaration of a processor; `body` is None if external workers or its endpoint execute it."""

    pipeline: str
    phase: str
    name: str
    pool: str
    timeout_us: Micros | None
    retry: Mapping[str, Any] | None
    runs: ExecutionKind
    body: ProcessorFunction | None
    terms: ProcessorSettings = field(default_factory=ProcessorSettings)
    """Options: what it needs and produces, the modes it runs in, its limits and entities."""

    @property
    def path(self) -> str:
        """Full name as users write it: `pipeline/phase/processor`."""
        return f"{self.pipeline}/{self.phase}/{self.name}"

    @property
    def reference(self) -> str:
        """Import path of the body for other processes: `module:qualname`."""
        return f"{getattr(self.body, '__module__', '?')}:{getattr(self.body, '__qualname__', '?')}"

    def definition(self) -> dict[str, Any]:
        """Return the processor as JSON values."""
        return {
            "name": self.name,
            "pool": self.pool,
            "timeout_us": self.timeout_us,
            "retry": None if self.retry is None else dict(self.retry),
            "runs": self.runs,
            **to_json(self.terms),
        }


def resolve_execution_kind(
    path: str, body: ProcessorFunction, runs: ExecutionKind
) -> ExecutionKind:
    """Return how a function is executed, with `auto` resolved. Raise DeclarationError if it cannot
    be executed that way.
    """
    if runs not in EXECUTION_KINDS:
        known = ", ".join(EXECUTION_KINDS)
        raise DeclarationError(f"processor {path}: runs={runs!r} is not known; known: {known}.")
    if not callable(body):
        raise DeclarationError(f"processor {path}: expected a function, got {body!r:.80}.")
    if runs == "http":
        raise DeclarationError(
            f"processor {path}: an HTTP processor is declared with @phase.http(url)."
        )
    if runs == "external":
        raise DeclarationError(
            f"processor {path}: an external processor has no body; use phase.external(name)."
        )
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise DeclarationError(f"processor {path} is a generator; a processor returns its result.")
    is_async = inspect.iscoroutinefunction(body)
    if is_async and runs in ("thread", "process"):
        raise DeclarationError(
            f"processor {path} is `async def` and cannot run as {runs!r}; "
            "omit runs, or make it a plain `def` that calls asyncio.run()."
        )
    if not is_async and runs == "async":
        raise DeclarationError(f"processor {path}: runs='async' needs an `async def` function.")
    try:
        inspect.signature(body).bind(None)
    except TypeError:
        raise DeclarationError(
            f"processor {path} must take exactly one argument, the run: def name(run): ..."
        ) from None
    except ValueError:  # a builtin without a signature; the call itself will fail
        pass
    if runs == "auto":
        return "async" if is_async else "thread"
    return runs
