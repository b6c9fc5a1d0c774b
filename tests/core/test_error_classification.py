"""Error classification: built-in families, tested with fake classes, and user-defined rules."""

from __future__ import annotations

import errno
import io
import json
import socket
import sqlite3
import urllib.error
from email.message import Message
from typing import Any

import pytest

from penstock.core import error_classification as module
from penstock.core.clock import DAY, SECOND
from penstock.core.error_classification import (
    ErrorRegistry,
    RetryHint,
    classify,
    retry_after,
    retry_hint,
)
from penstock.core.errors import (
    InvalidInput,
    LeaseLost,
    LimitTimeout,
    PermanentError,
    StoreBusy,
    TransientError,
)
from penstock.core.retry import ErrorType as T


def fake(name: str, package: str = "vendor", base: type = Exception, **attributes: Any) -> Any:
    """Return an instance of a fake library exception."""
    cls = type(name, (base,), {"__module__": package})
    error = cls("boom")
    for key, value in attributes.items():
        setattr(error, key, value)
    return error


class Response:
    """The part of an HTTP response that clients attach to their errors."""

    def __init__(self, status_code: int, **headers: str) -> None:
        self.status_code = status_code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def http_error(status: int) -> urllib.error.HTTPError:
    headers = Message()
    headers["Retry-After"] = "7"
    return urllib.error.HTTPError("http://x", status, "no", headers, io.BytesIO())


GOOGLE = "google.api_core.exceptions"
BOTO_403 = {"ResponseMetadata": {"HTTPStatusCode": 403}}


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (TimeoutError(), T.TIMEOUT),
        (socket.timeout(), T.TIMEOUT),  # noqa: UP041 - the alias users catch
        (ConnectionResetError(), T.TRANSIENT_NETWORK),
        (BrokenPipeError(), T.TRANSIENT_NETWORK),
        (socket.gaierror(), T.TRANSIENT_NETWORK),
        (OSError(errno.ENETUNREACH, "no route"), T.TRANSIENT_NETWORK),
        (OSError(errno.ENOSPC, "full"), T.UNKNOWN),
        (PermissionError(), T.AUTHORIZATION_FAILED),
        (FileNotFoundError(), T.RESOURCE_NOT_FOUND),
        (ValueError("x"), T.UNKNOWN),
        (KeyboardInterrupt(), T.UNKNOWN),
        (json.JSONDecodeError("x", "", 0), T.VALIDATION_ERROR),
        (fake("TooManyRequests", GOOGLE, code=429), T.RATE_LIMIT_EXCEEDED),
        (fake("ResourceExhausted", GOOGLE, code=429), T.RATE_LIMIT_EXCEEDED),
        (fake("Forbidden", GOOGLE, code=403), T.AUTHORIZATION_FAILED),
        (fake("Forbidden", GOOGLE, errors=[{"reason": "quotaExceeded"}]), T.QUOTA_EXCEEDED),
        (fake("Forbidden", GOOGLE, errors=[{"reason": "rateLimitExceeded"}]), T.QUOTA_EXCEEDED),
        (fake("PermissionDenied", GOOGLE, code=403), T.AUTHORIZATION_FAILED),
        (fake("Unauthenticated", GOOGLE, code=401), T.AUTHENTICATION_FAILED),
        (fake("RefreshError", "google.auth.exceptions"), T.AUTHENTICATION_FAILED),
        (fake("NotFound", GOOGLE, code=404), T.RESOURCE_NOT_FOUND),
        (fake("ServiceUnavailable", GOOGLE, code=503), T.SERVICE_UNAVAILABLE),
        (fake("BadGateway", GOOGLE, code=502), T.SERVICE_UNAVAILABLE),
        (fake("InternalServerError", GOOGLE, code=500), T.SERVICE_UNAVAILABLE),
        (fake("DeadlineExceeded", GOOGLE, code=504), T.TIMEOUT),
        (fake("InvalidArgument", GOOGLE, code=400), T.VALIDATION_ERROR),
        (fake("Aborted", GOOGLE, code=409), T.TRANSIENT_NETWORK),
        (fake("Subclass", GOOGLE, type(fake("NotFound", GOOGLE))), T.RESOURCE_NOT_FOUND),
        (fake("NotFound"), T.UNKNOWN),
        (fake("HTTPStatusError", response=Response(429)), T.RATE_LIMIT_EXCEEDED),
        (fake("HTTPError", response=Response(503)), T.SERVICE_UNAVAILABLE),
        (fake("HTTPError", response=Response(401)), T.AUTHENTICATION_FAILED),
        (fake("HTTPError", response=Response(418)), T.VALIDATION_ERROR),
        (fake("ClientResponseError", status=404), T.RESOURCE_NOT_FOUND),
        (fake("ClientError", response=BOTO_403), T.AUTHORIZATION_FAILED),
        (fake("ApiError", status_code=504), T.TIMEOUT),
        (fake("ApiError", code=7, status="403", status_code=True), T.UNKNOWN),
        (fake("ReadTimeout", "httpx", type(fake("TimeoutException"))), T.TIMEOUT),
        (fake("ConnectError", "httpx", type(fake("TransportError"))), T.TRANSIENT_NETWORK),
        (fake("ValidationError", "pydantic_core"), T.VALIDATION_ERROR),
        (sqlite3.OperationalError("database is locked"), T.SERVICE_UNAVAILABLE),
        (sqlite3.IntegrityError("unique"), T.VALIDATION_ERROR),
        (sqlite3.ProgrammingError("closed"), T.INVALID_CONFIGURATION),
        (fake("OperationalError", "psycopg", sqlstate="40001"), T.TRANSIENT_NETWORK),
        (fake("OperationalError", "psycopg", sqlstate="40P01"), T.TRANSIENT_NETWORK),
        (fake("OperationalError", "psycopg", sqlstate="28P01"), T.AUTHENTICATION_FAILED),
        (fake("OperationalError", "psycopg", sqlstate=None), T.SERVICE_UNAVAILABLE),
        (fake("DataError", "psycopg", sqlstate="22P02"), T.VALIDATION_ERROR),
        (PermanentError("x", error_type="bad credentials"), "BAD_CREDENTIALS"),
        (PermanentError("x"), T.PERMANENT_ERROR),
        (TransientError("x"), T.TRANSIENT_ERROR),
        (InvalidInput("f", "e", 1), T.VALIDATION_ERROR),
        (LimitTimeout(), T.RATE_LIMIT_EXCEEDED),
        (StoreBusy(), T.SERVICE_UNAVAILABLE),
        (LeaseLost(), T.UNKNOWN),
        (ExceptionGroup("tasks", [ValueError(), ConnectionError()]), T.TRANSIENT_NETWORK),
    ],
)  # fmt: skip
def test_families(exc: BaseException, expected: str) -> None:
    """Each family is recognised by class names and attributes."""
    assert classify(exc) == expected


def test_urllib_errors_carry_status_and_retry_after() -> None:
    """The HTTP error of the standard library is classified by its status."""
    with http_error(429) as error:
        assert retry_hint(error) == RetryHint(T.RATE_LIMIT_EXCEEDED, None, 7 * SECOND)


def _wrapped(cause: BaseException, *, hidden: bool) -> BaseException:
    outer = RuntimeError("load failed")
    outer.__context__ = cause
    outer.__suppress_context__ = hidden
    return outer


def test_causes_are_inspected() -> None:
    """An unknown wrapper is classified by its cause, unless the cause is suppressed."""
    assert classify(_wrapped(ConnectionResetError(), hidden=False)) == T.TRANSIENT_NETWORK
    assert classify(_wrapped(ConnectionResetError(), hidden=True)) == T.UNKNOWN
    outer = RuntimeError("load failed")
    outer.__cause__ = TimeoutError()
    assert classify(outer) == T.TIMEOUT


def test_cycles_and_long_chains_end() -> None:
    """Cyclic and very long chains are cut off."""
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    assert classify(first) == T.UNKNOWN
    error: BaseException = ConnectionError()
    for _ in range(1000):
        outer = RuntimeError()
        outer.__cause__ = error
        error = outer
    assert classify(error) == T.UNKNOWN


class _Hostile(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("not now")


def test_hostile_attributes_do_not_break_the_verdict() -> None:
    """An exception whose attributes raise is UNKNOWN and does not crash the worker."""
    assert retry_hint(_Hostile()) == RetryHint(T.UNKNOWN)


def test_user_rules_come_first_and_the_newest_wins() -> None:
    """A rule is a class, a tuple of classes or a predicate, and may override the families."""
    registry = ErrorRegistry()
    registry.register((ValueError, KeyError), "bad data")
    registry.register(lambda exc: "asleep" in str(exc), "WAREHOUSE_ASLEEP")
    registry.register(lambda exc: bool(exc.args[99]), "NEVER")
    registry.register(TimeoutError, T.SERVICE_UNAVAILABLE)
    assert registry.classify(KeyError("x")) == "BAD_DATA"
    assert registry.classify(ValueError("asleep")) == "WAREHOUSE_ASLEEP"
    assert registry.classify(TimeoutError()) == T.SERVICE_UNAVAILABLE
    assert registry.classify(ConnectionError()) == T.TRANSIENT_NETWORK
    assert classify(KeyError("x")) == T.UNKNOWN


def test_register_extends_the_process_wide_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module-level functions share one registry."""
    monkeypatch.setattr(module, "DEFAULT", ErrorRegistry())
    module.register(LookupError, "lookup")
    assert module.classify(IndexError()) == "LOOKUP"


@pytest.mark.parametrize(
    ("exc", "micros"),
    [
        (fake("E", response=Response(429, Retry_After="30")), 30 * SECOND),
        (fake("E", response=Response(429)), None),
        (fake("E", response=Response(429, Retry_After="Fri, 31 Dec 1999 23:59:59 GMT")), None),
        (fake("E", response=Response(429, Retry_After="-5")), None),
        (fake("E", response=Response(429, Retry_After="9" * 12)), 30 * DAY),
        (fake("E", response=Response(429, Retry_After="9" * 5000)), None),
        (fake("E", retry_after=1.5), 3 * SECOND // 2),
        (fake("E", retry_after=float("nan")), None),
        (fake("E", retry_after=float("inf")), 30 * DAY),
        (TransientError("x", retry_after_seconds=2), 2 * SECOND),
        (ValueError(), None),
    ],
)
def test_retry_after(exc: BaseException, micros: int | None) -> None:
    """Retry-After is read in seconds; any other form is ignored."""
    assert retry_after(exc) == micros


def test_verdict_of_processor_errors() -> None:
    """PermanentError forbids a retry, TransientError forces one, others depend on the type."""
    assert retry_hint(PermanentError("x", error_type="A")) == RetryHint("A", False)
    assert retry_hint(TransientError("x", error_type="A")) == RetryHint("A", True)
    assert retry_hint(ConnectionError()) == RetryHint(T.TRANSIENT_NETWORK)
