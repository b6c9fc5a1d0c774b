"""What an exception means for the message that was being handled.

Poison will fail whenever it is tried; a configuration error will fail until a person acts, and is
told to one at once; everything else is transient, above all what nobody knows. The families of
libraries are `core.classify`'s, which users extend with `register_error`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.bus.message import ErrorKind
from penstock.core import error_classification
from penstock.core.clock import SECOND, Micros, parse_duration
from penstock.core.errors import (
    PenstockError,
    SchemaMismatch,
    SettingsError,
    TransientError,
)
from penstock.core.redact import redact_text
from penstock.core.retry import ErrorType

ERROR_MAX: Final = 500
CODE_MAX: Final = 64

KINDS: Final[Mapping[str, ErrorKind]] = {
    ErrorType.VALIDATION_ERROR: ErrorKind.POISON,
    ErrorType.PERMANENT_ERROR: ErrorKind.POISON,
    ErrorType.AUTHENTICATION_FAILED: ErrorKind.CONFIGURATION,
    ErrorType.AUTHORIZATION_FAILED: ErrorKind.CONFIGURATION,
    ErrorType.INVALID_CONFIGURATION: ErrorKind.CONFIGURATION,
}
"""Error types that are not transient."""


class Reject(PenstockError):
    """This message can never be handled."""

    code = "message.rejected"
    http_status = 422

    def __init__(self, reason: str | None = None, *, is_malformed: bool = False) -> None:
        # Malformed: nothing could be read, not even to judge the contents.
        self.is_malformed = is_malformed
        super().__init__(reason)


class TryAgain(TransientError):
    """This message cannot be handled yet."""

    code = "message.try_again"

    def __init__(self, reason: str | None = None, *, after: str | float | None = None) -> None:
        seconds = None if after is None else parse_duration(after, "after") / SECOND
        super().__init__(reason, retry_after_seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, classified and fit to be shown."""

    kind: ErrorKind
    error_type: str
    error: str
    error_code: str | None = None
    delay_us: Micros | None = None
    is_malformed: bool = False


def failure_of(error: BaseException) -> Failure:
    """Classify an exception; never raises, whatever the exception's own attributes do."""
    found = error_classification.verdict(error)
    kind, error_type = _judged(error, found)
    return Failure(
        kind=kind,
        error_type=error_type,
        error=_text(error),
        error_code=_code(error),
        delay_us=found.retry_after_us if kind is not ErrorKind.POISON else None,
        is_malformed=isinstance(error, Reject) and error.is_malformed,
    )


def _judged(error: BaseException, found: error_classification.Verdict) -> tuple[ErrorKind, str]:
    if isinstance(error, Reject):
        return ErrorKind.POISON, ErrorType.VALIDATION_ERROR
    if isinstance(error, SettingsError | SchemaMismatch) or _is_missing_variable(error):
        return ErrorKind.CONFIGURATION, ErrorType.INVALID_CONFIGURATION
    kind = KINDS.get(found.error_type)
    if found.insist is True:
        return ErrorKind.TRANSIENT, found.error_type
    if kind is None and found.insist is False:
        return ErrorKind.POISON, found.error_type
    if found.error_type == ErrorType.UNKNOWN and isinstance(error, ValueError):
        # A handler that cannot make sense of a value says so like this.
        return ErrorKind.POISON, ErrorType.VALIDATION_ERROR
    return kind or ErrorKind.TRANSIENT, found.error_type


def _is_missing_variable(error: BaseException) -> bool:
    """Whether the error is os.environ's, about a variable that is not set."""
    if not isinstance(error, KeyError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == os.__name__


def _text(error: BaseException) -> str:
    try:
        text = str(error) or type(error).__name__
    except Exception:  # a broken __str__
        text = type(error).__name__
    named = text if isinstance(error, PenstockError) else f"{type(error).__name__}: {text}"
    # Cut generously first: redaction must not meet megabytes, nor half a secret be left over.
    told = redact_text(named[: 4 * ERROR_MAX])[:ERROR_MAX]
    # No store holds lone surrogates or NUL, and a refusal must not fail over its reason.
    return told.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _code(error: BaseException) -> str | None:
    """The code the library gave the error: an SQL state, an HTTP status, a name, an errno."""
    for name in ("sqlstate", "code", "status_code", "errno"):
        try:
            value = getattr(error, name, None)
            if isinstance(value, Enum):
                value = value.name
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
                return str(value)[:CODE_MAX]
        except Exception:  # noqa: S112 - attributes of foreign exceptions may be anything
            continue
    return None
