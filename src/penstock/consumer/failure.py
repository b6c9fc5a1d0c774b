"""Classification of an exception raised while a message was handled.

Poison fails on every attempt. A configuration error fails until an operator fixes it, and opens an
alert immediately. Everything else is transient, including unknown errors.
`core.error_classification` covers the exceptions of common libraries; users extend it with
`register_error`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from penstock.flows.gates.acknowledge import GateResponse

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
FROM_HANDLER: Final = "_penstock_from_handler"
"""Attribute of an exception that a handler raised, inside or outside a transaction of the sink."""


class Reject(PenstockError):
    """Raised by a handler to reject a message that can never be handled (poison)."""

    code = "message.rejected"
    http_status = 422

    def __init__(self, reason: str | None = None, *, is_malformed: bool = False) -> None:
        # Malformed: the message could not even be parsed.
        self.is_malformed = is_malformed
        super().__init__(reason)


class TryAgain(TransientError):
    """Raised by a handler for a message that cannot be handled yet; `after` delays the retry."""

    code = "message.try_again"

    def __init__(self, reason: str | None = None, *, after: str | float | None = None) -> None:
        seconds = None if after is None else parse_duration(after, "after") / SECOND
        super().__init__(reason, retry_after_seconds=seconds)


class GateClosed(PenstockError):
    """Raised by a gate that does not let the handler run now; `response` has the details."""

    code = "message.gate_closed"

    def __init__(self, response: GateResponse) -> None:
        self.response = response
        super().__init__(response.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A classified error, with secrets masked."""

    kind: ErrorKind
    error_type: str
    error: str
    error_code: str | None = None
    delay_us: Micros | None = None
    is_malformed: bool = False


def failure_of(error: BaseException) -> Failure:
    """Classify an exception; never raises, even if the exception's attributes do."""
    found = error_classification.retry_hint(error)
    kind, error_type = _classified(error, found)
    return Failure(
        kind=kind,
        error_type=error_type,
        error=_text(error),
        error_code=_code(error),
        delay_us=found.retry_after_us if kind is not ErrorKind.POISON else None,
        is_malformed=isinstance(error, Reject) and error.is_malformed,
    )


def _classified(
    error: BaseException, found: error_classification.RetryHint
) -> tuple[ErrorKind, str]:
    if isinstance(error, Reject):
        return ErrorKind.POISON, ErrorType.VALIDATION_ERROR
    if isinstance(error, SettingsError | SchemaMismatch) or _is_missing_variable(error):
        return ErrorKind.CONFIGURATION, ErrorType.INVALID_CONFIGURATION
    kind = KINDS.get(found.error_type)
    if found.force_retry is True:
        return ErrorKind.TRANSIENT, found.error_type
    if kind is None and found.force_retry is False:
        return ErrorKind.POISON, found.error_type
    if found.error_type == ErrorType.UNKNOWN and isinstance(error, ValueError):
        # Handlers raise ValueError for input they cannot interpret.
        return ErrorKind.POISON, ErrorType.VALIDATION_ERROR
    return kind or ErrorKind.TRANSIENT, found.error_type


def _is_missing_variable(error: BaseException) -> bool:
    """Return whether the error is a KeyError of os.environ for an unset variable."""
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
    # Truncate generously before redaction, so that it neither scans megabytes nor splits a secret.
    text = redact_text(named[: 4 * ERROR_MAX])[:ERROR_MAX]
    # No store accepts lone surrogates or NUL, and a nack must not fail because of its reason.
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _code(error: BaseException) -> str | None:
    """Return the error's code from its library: SQLSTATE, HTTP status, name or errno."""
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
