"""Classification of exceptions into error types, with a registry that users can extend.

Library exceptions are recognised by class names and attributes, never by importing the library. The
worker calls ``retry_hint`` after a processor raises; it never raises itself, even if reading the
exception's attributes does. The built-in exception families are in ``core.exception_families``.
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
"""Maximum number of exceptions inspected in a chain of causes and group members."""

Predicate: TypeAlias = Callable[[BaseException], bool]
Matcher: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | Predicate


@dataclass(frozen=True, slots=True)
class RetryHint:
    """The error type and retry instructions of an exception.

    force_retry: True forces a retry, False forbids one, None leaves it to the retry policy.
    retry_after_us: the delay that the remote service requested, if any.
    """

    error_type: str
    force_retry: bool | None = None
    retry_after_us: Micros | None = None


class ErrorRegistry:
    """Rules that map exceptions to error types: the newest first, then the built-in families."""

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: tuple[tuple[Matcher, str], ...] = ()

    def register(self, matcher: Matcher, error_type: str) -> None:
        """Map an exception class (with its subclasses) or a predicate to an error type."""
        # The tuple is replaced as a whole, so that worker threads never see a partial change.
        self._rules = ((matcher, normalise_error_type(error_type)), *self._rules)

    def classify(self, exc: BaseException) -> str:
        """Return the error type of an exception, or of the first of its causes that has one."""
        for error in _chain(exc):
            found = self._classify_one(error)
            if found is not None:
                return found
        return ErrorType.UNKNOWN.value

    def retry_hint(self, exc: BaseException) -> RetryHint:
        """Return the error type, whether the exception forces or forbids a retry, and its delay."""
        force_retry: bool | None = None
        if isinstance(exc, PermanentError):
            force_retry = False
        elif isinstance(exc, TransientError):
            force_retry = True
        return RetryHint(self.classify(exc), force_retry, retry_after(exc))

    def _classify_one(self, exc: BaseException) -> str | None:
        for matcher, error_type in self._rules:
            if _matches(matcher, exc):
                return error_type
        if isinstance(exc, ProcessorError):
            return normalise_error_type(exc.error_type)
        try:
            found = known_error_type(exc)
        except Exception:  # attributes of third-party exceptions may be properties that raise
            return None
        return None if found is None else found.value


DEFAULT: Final = ErrorRegistry()
"""The process-wide registry that ``register``, ``classify`` and ``retry_hint`` use."""


def register(matcher: Matcher, error_type: str) -> None:
    """Add a rule to the process-wide registry; the newest rule wins."""
    DEFAULT.register(matcher, error_type)


def classify(exc: BaseException) -> str:
    """Return the error type of an exception."""
    return DEFAULT.classify(exc)


def retry_hint(exc: BaseException) -> RetryHint:
    """Return the error type and the retry instructions of an exception."""
    return DEFAULT.retry_hint(exc)


def retry_after(exc: BaseException) -> Micros | None:
    """Return the delay that the remote service requested; None if there is none."""
    for error in _chain(exc):
        try:
            if isinstance(error, ProcessorError):
                seconds = error.retry_after_seconds
            else:
                seconds = retry_after_header(error)
            # NaN and negative values are ignored; an absurdly large value must not overflow.
            if seconds is not None and seconds >= 0:
                return round(min(seconds, DELAY_CAP_MAX / SECOND) * SECOND)
        except Exception:  # noqa: S112 - as above: third-party attributes may raise
            continue
    return None


def _matches(matcher: Matcher, exc: BaseException) -> bool:
    if isinstance(matcher, type | tuple):
        return isinstance(exc, matcher)
    try:
        return bool(matcher(exc))
    except Exception:  # a predicate that raises does not match
        return False


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception, its group members and its causes, each once, at most CHAIN_MAX."""
    seen: set[int] = set()
    pending: deque[BaseException] = deque([exc])
    while pending and len(seen) < CHAIN_MAX:
        error = pending.popleft()
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions[:CHAIN_MAX])
        if error.__cause__ is not None:
            pending.append(error.__cause__)
        elif error.__context__ is not None and not error.__suppress_context__:
            pending.append(error.__context__)
