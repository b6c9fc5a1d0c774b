"""The errors that Penstock raises, with their API status and command-line exit code.

Each class has a stable ``code``, an HTTP status, an exit code and a flag that says whether a retry
may help; its docstring is the default message. Nothing here formats for a terminal or logs. All
packages raise these errors; ``server`` and ``cli`` each translate them in one place.

    PenstockError
    ├── InvalidInput ── SettingsError
    ├── DeclarationError
    ├── NotFound
    ├── Forbidden
    ├── Conflict ── AlreadyExists · IllegalTransition · StaleVersion · StaleToken · NotHolder
    ├── DuplicateRequest
    ├── StoreError ── StoreUnavailable · StoreBusy · SchemaMismatch
    ├── ApiError ── ApiUnavailable · Unauthorised · TooManyRequests · Overloaded  (over a URL)
    ├── RunInterrupted ── RunCancelled · RunTimedOut · LeaseLost · RunSnoozed
    ├── LimitTimeout · SlotLost
    └── ProcessorError ── PermanentError · TransientError        (raised by users' processors)
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, ClassVar

REPR_CHARS_MAX = 120


class PenstockError(Exception):
    """An internal error occurred in Penstock."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str | None = None, *, detail: Mapping[str, Any] | None = None
    ) -> None:
        text = message if message is not None else cleandoc(type(self).__doc__ or "")
        super().__init__(text)
        self.detail: dict[str, Any] = dict(detail or {})

    @property
    def message(self) -> str:
        """The message shown to users."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors differ between classes, but errors must be picklable across processes.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(
    cls: type[PenstockError], args: tuple[Any, ...], state: dict[str, Any]
) -> PenstockError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def short_repr(value: object) -> str:
    """Return a short, printable representation of a rejected value."""
    try:
        # Slice first: the repr of a huge string costs as much as the string itself.
        text = repr(value[:REPR_CHARS_MAX] if isinstance(value, str | bytes) else value)
    except Exception:  # a broken __repr__, or an int with too many digits to print
        text = f"<{type(value).__name__}>"
    cut = len(value) > REPR_CHARS_MAX if isinstance(value, str | bytes) else False
    if len(text) > REPR_CHARS_MAX + 2:
        text, cut = text[:REPR_CHARS_MAX], True
    return f"{text}…" if cut else text


class InvalidInput(PenstockError):
    """An input value is invalid."""

    code = "input.invalid"
    http_status = 400
    exit_code = 2

    def __init__(self, field: str, expected: str, got: object, fix: str | None = None) -> None:
        self.field = field
        self.expected = expected
        self.got = "nothing" if got is None else short_repr(got)
        self.fix = fix
        message = f"{field}: expected {expected}, got {self.got}."
        if fix:
            message = f"{message} {fix}"
        detail = {"field": field, "expected": expected, "got": self.got}
        super().__init__(message, detail=detail if fix is None else {**detail, "fix": fix})

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename the field to its name in the request: `names` maps Python names to JSON names."""
        head, dot, rest = self.field.partition(".")
        if head in names:
            field = f"{names[head]}{dot}{rest}"
            self.args = (self.message.replace(self.field, field, 1),)
            self.field = self.detail["field"] = field


class SettingsError(InvalidInput):
    """A setting of the process is invalid."""

    code = "settings.invalid"
    http_status = 500


class DeclarationError(PenstockError):
    """A pipeline declaration is invalid."""

    code = "pipeline.declaration"
    http_status = 400
    exit_code = 2


class NotFound(PenstockError):
    """The resource does not exist."""

    code = "not_found"
    http_status = 404
    exit_code = 3

    def __init__(self, kind: str, id: object, fix: str | None = None) -> None:
        self.kind = kind
        self.id = id
        self.fix = fix
        message, detail = f"There is no {kind} {id}.", {"kind": kind, "id": str(id)}
        if fix:
            message, detail = f"{message} {fix}", {**detail, "fix": fix}
        super().__init__(message, detail=detail)


class Forbidden(PenstockError):
    """The caller is not allowed to do this."""

    code = "auth.forbidden"
    http_status = 403
    exit_code = 4


class Conflict(PenstockError):
    """The state of the resource does not allow this operation."""

    code = "conflict"
    http_status = 409
    exit_code = 4


class AlreadyExists(Conflict):
    """A resource with that name already exists."""

    code = "already_exists"

    def __init__(self, kind: str, id: object) -> None:
        self.kind = kind
        self.id = id
        super().__init__(f"There is already a {kind} {id}.", detail={"kind": kind, "id": str(id)})


class IllegalTransition(Conflict):
    """The state machine does not allow this transition."""

    code = "run.illegal_transition"

    def __init__(self, kind: str, subject: object, from_state: str, to_state: str) -> None:
        self.kind = kind
        self.subject = subject
        self.from_state = str(from_state)
        self.to_state = str(to_state)
        super().__init__(
            f"{kind} {subject} is {self.from_state} and cannot become {self.to_state}.",
            detail={
                "kind": kind,
                "subject": str(subject),
                "from": self.from_state,
                "to": self.to_state,
            },
        )


class StaleVersion(Conflict):
    """The resource was changed by another request in the meantime."""

    code = "stale_version"

    def __init__(self, kind: str, id: object, expected: int, current: int | None) -> None:
        self.kind = kind
        self.id = id
        self.expected = expected
        self.current = current
        now_at = "is gone" if current is None else f"is now at version {current}"
        super().__init__(
            f"{kind} {id} {now_at}, but the change was based on version {expected}. "
            "Read it again and repeat the change.",
            detail={"kind": kind, "id": str(id), "expected": expected, "current": current},
        )


class StaleToken(Conflict):
    """The run now has another holder; this result was rejected."""

    code = "run.stale_token"

    def __init__(self, run_id: object) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id} is no longer held under this fencing token; nothing was changed.",
            detail={"run_id": str(run_id)},
        )


class NotHolder(Conflict):
    """The run is not held by this worker and key."""

    code = "run.not_holder"

    def __init__(self, run_id: object) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id} is not held by this worker and key; nothing was changed. "
            "Send the fencing token that the claim returned.",
            detail={"run_id": str(run_id)},
        )


class DuplicateRequest(PenstockError):
    """This idempotency key was used before with a different request body."""

    code = "request.key_reused"
    http_status = 422
    exit_code = 4


class StoreError(PenstockError):
    """The store could not complete the operation."""

    code = "store"
    http_status = 503
    exit_code = 5


class StoreUnavailable(StoreError):
    """The store cannot be reached."""

    code = "store.unavailable"
    retryable = True

    def __init__(
        self,
        message: str | None = None,
        *,
        ambiguous: bool = False,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        # Ambiguous: the connection broke during commit, so the change may or may not be stored.
        self.ambiguous = ambiguous
        super().__init__(message, detail={**(detail or {}), "ambiguous": ambiguous})


class StoreBusy(StoreError):
    """The store is busy; the statement conflicted with another one and may be retried."""

    code = "store.busy"
    retryable = True


class ReadTimeout(StoreBusy):
    """A read was stopped because it reached the time limit of its caller."""

    code = "store.read_timeout"


class SchemaMismatch(StoreError):
    """The database schema does not match this version of Penstock; run `penstock db migrate`."""

    code = "store.schema_mismatch"
    http_status = 500
    exit_code = 6


class ApiError(PenstockError):
    """The API rejected the request."""

    code = "refused"

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, detail=detail)
        if code is not None:
            # Keep error codes that are unknown to this version.
            vars(self)["code"] = code


class ApiUnavailable(ApiError):
    """The API cannot be reached."""

    code = "api.unavailable"
    http_status = 503
    exit_code = 5
    retryable = True


class TransportUnavailable(PenstockError):
    """The message broker cannot be reached, or currently has no leader."""

    code = "transport.unavailable"
    http_status = 503
    exit_code = 5
    retryable = True


class Unauthorised(ApiError):
    """The API requires a valid API key."""

    code = "auth.required"
    http_status = 401
    exit_code = 4


class TooManyRequests(ApiError):
    """The API key exceeded its request rate."""

    code = "rate.exceeded"
    http_status = 429
    exit_code = 5
    retryable = True


class Overloaded(ApiError):
    """The API is overloaded and did not accept the request."""

    code = "overloaded"
    http_status = 503
    exit_code = 5
    retryable = True


class RunInterrupted(PenstockError):
    """The run must stop."""

    code = "run.interrupted"
    http_status = 409
    exit_code = 4


class RunCancelled(RunInterrupted):
    """The run was cancelled."""

    code = "run.cancelled"


class RunTimedOut(RunInterrupted):
    """The run exceeded its maximum execution duration."""

    code = "run.timed_out"


class LeaseLost(RunInterrupted):
    """The lease on the run is lost; any result that it reports is rejected."""

    code = "run.lease_lost"


class RunSnoozed(RunInterrupted):
    """The run left its worker to wait for a limit and starts again later; do not catch this."""

    code = "run.snoozed"

    def __init__(self, message: str | None = None, *, delay_us: int = 0) -> None:
        self.delay_us = delay_us
        super().__init__(message)


class RunSuspended(RunInterrupted):
    """The run left its worker to wait for a flow and starts again later; do not catch this."""

    code = "run.suspended"


class SlotLost(PenstockError):
    """The slot of the limit was not renewed in time or was revoked; it may have a new holder."""

    code = "limit.slot_lost"
    http_status = 409
    exit_code = 5
    retryable = True


class LimitTimeout(PenstockError):
    """No slot of the limit became free in time."""

    code = "limit.timeout"
    http_status = 503
    exit_code = 5
    retryable = True


class ProcessorError(PenstockError):
    """A processor reported a failure."""

    code = "processor.failed"
    error_type_default: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str | None = None,
        *,
        error_type: str | None = None,
        retry_after_seconds: float | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        self.error_type = str(error_type or self.error_type_default)
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message, detail={**(detail or {}), "error_type": self.error_type})


class PermanentError(ProcessorError):
    """The work failed, and retrying cannot help."""

    code = "processor.permanent"
    error_type_default = "PERMANENT_ERROR"


class TransientError(ProcessorError):
    """The work failed, and retrying may help."""

    code = "processor.transient"
    error_type_default = "TRANSIENT_ERROR"
    retryable = True
