"""A processor as declared: what it is called, where and how long it runs, and its function.

Made by `core.pipeline`; the checks that need nothing but the function itself live here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from penstock.core.clock import Micros
from penstock.core.errors import DeclarationError
from penstock.core.record import plain
from penstock.pipelines.declare.terms import ProcessorTerms

Body: TypeAlias = Callable[..., Any]
Runs: TypeAlias = Literal["auto", "thread", "async", "process", "external"]

KINDS: Final = ("auto", "thread", "async", "process", "external")


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One unit of work as declared; `body` is None when somebody outside does it."""

    pipeline: str
    phase: str
    name: str
    pool: str
    timeout_us: Micros
    retry: Mapping[str, Any] | None
    runs: Runs
    body: Body | None
    terms: ProcessorTerms = field(default_factory=ProcessorTerms)
    """What it needs and produces, the modes it runs in, its limits and entities."""

    @property
    def path(self) -> str:
        """How people name it."""
        return f"{self.pipeline}/{self.phase}/{self.name}"

    @property
    def reference(self) -> str:
        """Where another process finds the body: `module:qualname`."""
        return f"{getattr(self.body, '__module__', '?')}:{getattr(self.body, '__qualname__', '?')}"

    def definition(self) -> dict[str, Any]:
        """The processor as JSON."""
        return {
            "name": self.name,
            "pool": self.pool,
            "timeout_us": self.timeout_us,
            "retry": None if self.retry is None else dict(self.retry),
            "runs": self.runs,
            **plain(self.terms),
        }


def kind_of(path: str, body: Body, runs: Runs) -> Runs:
    """What a function runs as, once `auto` is resolved."""
    if runs not in KINDS:
        known = ", ".join(KINDS)
        raise DeclarationError(f"processor {path}: runs={runs!r} is not known; known: {known}.")
    if not callable(body):
        raise DeclarationError(f"processor {path}: expected a function, got {body!r:.80}.")
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
            "leave runs out, or make it a plain `def` that calls asyncio.run()."
        )
    if not is_async and runs == "async":
        raise DeclarationError(f"processor {path}: runs='async' needs an `async def` function.")
    try:
        inspect.signature(body).bind(None)
    except TypeError:
        raise DeclarationError(
            f"processor {path} must take exactly one argument, the run: def name(run): ..."
        ) from None
    except ValueError:  # a builtin without a signature: it will tell when it is called
        pass
    if runs == "auto":
        return "async" if is_async else "thread"
    return runs
