"""From an exception to an error type, through a registry that users extend.

Libraries are recognised by class names and attributes, never by importing them. ``verdict`` is what
the worker asks after a processor raised; it must not raise itself, whatever the exception's own
attributes do. The families known out of the box are in ``core.families``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.core.clock import SECOND, Micros
from penstock.core.errors import PermanentError, ProcessorError, TransientError
from penstock.core.exception_families import known_error_type, retry_after_header
from penstock.core.retry import DELAY_CAP_MAX, ErrorType, normalise_error_type

CHAIN_MAX: Final = 16
"""How many causes of an exception are looked at."""

Predicate: TypeAlias = Callable[[BaseException], bool]
Matcher: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | Predicate


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an exception means for the retry decision."""

    error_type: str
    insist: bool | None = None
    retry_after_us: Micros | None = None


class ErrorRegistry:
    """Rules from exceptions to error types: the newest first, then the known families."""

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: tuple[tuple[Matcher, str], ...] = ()

    def register(self, matcher: Matcher, error_type: str) -> None:
        """Let an exception class (with its subclasses) or a predicate mean this error type."""
        # Replaced as a whole, so that a worker thread never sees half a change.
        self._rules = ((matcher, normalise_error_type(error_type)), *self._rules)

    def classify(self, exc: BaseException) -> str:
        """Return the error type of an exception, looking at its causes when it says nothing."""
        for link in _chain(exc):
            found = self._one(link)
            if found is not None:
                return found
        return ErrorType.UNKNOWN.value

    def verdict(self, exc: BaseException) -> Verdict:
        """Return the error type, whether the exception insists on or forbids a retry, and when."""
        insist: bool | None = None
        if isinstance(exc, PermanentError):
            insist = False
        elif isinstance(exc, TransientError):
            insist = True
        return Verdict(self.classify(exc), insist, retry_after(exc))

    def _one(self, exc: BaseException) -> str | None:
        for matcher, error_type in self._rules:
            if _matches(matcher, exc):
                return error_type
        if isinstance(exc, ProcessorError):
            return normalise_error_type(exc.error_type)
        try:
            found = known_error_type(exc)
        except Exception:  # attributes of foreign exceptions may be properties that raise
            return None
        return None if found is None else found.value


DEFAULT: Final = ErrorRegistry()
"""The registry of the process, which ``register``, ``classify`` and ``verdict`` use."""


def register(matcher: Matcher, error_type: str) -> None:
    """Add a rule to the registry of the process; the newest rule wins."""
    DEFAULT.register(matcher, error_type)


def classify(exc: BaseException) -> str:
    """Return the error type of an exception."""
    return DEFAULT.classify(exc)


def verdict(exc: BaseException) -> Verdict:
    """Return all that an exception says about retrying."""
    return DEFAULT.verdict(exc)


def retry_after(exc: BaseException) -> Micros | None:
    """Return the delay the other side asked for, None when it asked for none."""
    for link in _chain(exc):
        try:
            if isinstance(link, ProcessorError):
                seconds = link.retry_after_seconds
            else:
                seconds = retry_after_header(link)
            # Not a number and negative values say nothing; a silly one must not overflow.
            if seconds is not None and seconds >= 0:
                return round(min(seconds, DELAY_CAP_MAX / SECOND) * SECOND)
        except Exception:  # noqa: S112 - as above: a foreign exception may answer with anything
            continue
    return None


def _matches(matcher: Matcher, exc: BaseException) -> bool:
    if isinstance(matcher, type | tuple):
        return isinstance(exc, matcher)
    try:
        return bool(matcher(exc))
    except Exception:  # a user's predicate that fails has not recognised the exception
        return False


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception, the members of a group and all causes, bounded and none twice."""
    seen: set[int] = set()
    waiting: deque[BaseException] = deque([exc])
    while waiting and len(seen) < CHAIN_MAX:
        link = waiting.popleft()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions[:CHAIN_MAX])
        if link.__cause__ is not None:
            waiting.append(link.__cause__)
        elif link.__context__ is not None and not link.__suppress_context__:
            waiting.append(link.__context__)
