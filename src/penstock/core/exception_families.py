"""The built-in exception families: sockets, HTTP clients, google-api-core and DB-API drivers.

Only ``core.error_classification`` uses this module. Third-party exceptions are recognised by the
class names in their MRO and by attributes such as ``status_code`` and ``sqlstate``; no third-party
library is imported. The order matters: specific classes first, then an HTTP status, then database
errors, and last the general classes of the standard library and of common clients.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import InvalidInput, LimitTimeout, PenstockError
from penstock.core.retry import ErrorType

T = ErrorType

_GOOGLE: Final[Mapping[str, ErrorType]] = {
    "TooManyRequests": T.RATE_LIMIT_EXCEEDED,
    "ResourceExhausted": T.RATE_LIMIT_EXCEEDED,
    "Unauthorized": T.AUTHENTICATION_FAILED,
    "Unauthenticated": T.AUTHENTICATION_FAILED,
    "RefreshError": T.AUTHENTICATION_FAILED,
    "DefaultCredentialsError": T.AUTHENTICATION_FAILED,
    "Forbidden": T.AUTHORIZATION_FAILED,
    "PermissionDenied": T.AUTHORIZATION_FAILED,
    "NotFound": T.RESOURCE_NOT_FOUND,
    "DeadlineExceeded": T.TIMEOUT,
    "GatewayTimeout": T.TIMEOUT,
    "ServiceUnavailable": T.SERVICE_UNAVAILABLE,
    "BadGateway": T.SERVICE_UNAVAILABLE,
    "InternalServerError": T.SERVICE_UNAVAILABLE,
    "Unknown": T.SERVICE_UNAVAILABLE,
    "DataLoss": T.SERVICE_UNAVAILABLE,
    "Aborted": T.TRANSIENT_NETWORK,
    "Cancelled": T.TRANSIENT_NETWORK,
    "RetryError": T.TIMEOUT,
    "TransportError": T.TRANSIENT_NETWORK,
    "InvalidArgument": T.VALIDATION_ERROR,
    "OutOfRange": T.VALIDATION_ERROR,
    "BadRequest": T.VALIDATION_ERROR,
    "FailedPrecondition": T.INVALID_CONFIGURATION,
    "MethodNotImplemented": T.INVALID_CONFIGURATION,
    "Conflict": T.VALIDATION_ERROR,
    "AlreadyExists": T.VALIDATION_ERROR,
}
_STATUS: Final[Mapping[int, ErrorType]] = {
    400: T.VALIDATION_ERROR,
    401: T.AUTHENTICATION_FAILED,
    403: T.AUTHORIZATION_FAILED,
    404: T.RESOURCE_NOT_FOUND,
    405: T.INVALID_CONFIGURATION,
    407: T.AUTHENTICATION_FAILED,
    408: T.TIMEOUT,
    410: T.RESOURCE_NOT_FOUND,
    413: T.VALIDATION_ERROR,
    415: T.VALIDATION_ERROR,
    422: T.VALIDATION_ERROR,
    425: T.TRANSIENT_NETWORK,
    429: T.RATE_LIMIT_EXCEEDED,
    501: T.INVALID_CONFIGURATION,
    504: T.TIMEOUT,
}
_DATABASE: Final[Mapping[str, ErrorType]] = {
    "IntegrityError": T.VALIDATION_ERROR,
    "DataError": T.VALIDATION_ERROR,
    "ProgrammingError": T.INVALID_CONFIGURATION,
    "NotSupportedError": T.INVALID_CONFIGURATION,
    "OperationalError": T.SERVICE_UNAVAILABLE,
    "InterfaceError": T.SERVICE_UNAVAILABLE,
    "InternalError": T.SERVICE_UNAVAILABLE,
}
_SQLSTATE_CLASS: Final[Mapping[str, ErrorType]] = {
    "08": T.TRANSIENT_NETWORK,
    "22": T.VALIDATION_ERROR,
    "23": T.VALIDATION_ERROR,
    "28": T.AUTHENTICATION_FAILED,
    "40": T.TRANSIENT_NETWORK,  # serialization failure and deadlock: a retry helps
    "42": T.INVALID_CONFIGURATION,
    "53": T.SERVICE_UNAVAILABLE,
    "55": T.SERVICE_UNAVAILABLE,
    "57": T.SERVICE_UNAVAILABLE,
}
_NAMED: Final[Mapping[str, ErrorType]] = {
    "ValidationError": T.VALIDATION_ERROR,  # pydantic, msgspec, jsonschema, marshmallow
    "DecodeError": T.VALIDATION_ERROR,  # msgspec
    "JSONDecodeError": T.VALIDATION_ERROR,
    "TimeoutException": T.TIMEOUT,  # httpx
    "Timeout": T.TIMEOUT,  # requests
    "ConnectTimeoutError": T.TIMEOUT,  # urllib3, botocore
    "ReadTimeoutError": T.TIMEOUT,
    "TransportError": T.TRANSIENT_NETWORK,  # httpx
    "ConnectionError": T.TRANSIENT_NETWORK,  # requests, redis
    "ClientConnectionError": T.TRANSIENT_NETWORK,  # aiohttp
    "ProtocolError": T.TRANSIENT_NETWORK,  # urllib3
    "IncompleteRead": T.TRANSIENT_NETWORK,  # http.client
    "RemoteDisconnected": T.TRANSIENT_NETWORK,
}
_NETWORK_ERRNO: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.EPIPE,
    }
)
_QUOTA_WORDS: Final = ("quotaexceeded", "quota exceeded", "ratelimitexceeded", "exceeded quota")


def known_error_type(exc: BaseException) -> ErrorType | None:
    """Return the error type of an exception of a known family; None for any other."""
    names = [cls.__name__ for cls in type(exc).__mro__]
    if isinstance(exc, PenstockError):
        return _penstock(exc)
    google = any(cls.__module__.startswith("google.") for cls in type(exc).__mro__)
    return (
        (_google(exc, names) if google else None)
        or _http(exc)
        or _database(exc, names)
        or _standard(exc)
        or next((_NAMED[name] for name in names if name in _NAMED), None)
    )


def http_error_type(status: int) -> ErrorType:
    """Return the error type of an HTTP status of 400 or above."""
    if status in _STATUS:
        return _STATUS[status]
    return T.SERVICE_UNAVAILABLE if status >= 500 else T.VALIDATION_ERROR


def retry_after_header(exc: BaseException) -> float | None:
    """Return the seconds of the Retry-After header of the exception's response; None if absent.

    The date form is ignored, because it would require a clock.
    """
    direct = getattr(exc, "retry_after", None)
    if isinstance(direct, int | float) and not isinstance(direct, bool):
        return float(direct)
    for owner in (getattr(exc, "response", None), exc):
        headers = getattr(owner, "headers", None)
        if headers is None:
            continue
        value = headers.get("Retry-After") or headers.get("retry-after")
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
        if text.strip().isdecimal() and len(text) <= 12:
            return float(text)
    return None


def _penstock(exc: PenstockError) -> ErrorType | None:
    if isinstance(exc, InvalidInput):
        return T.VALIDATION_ERROR
    if isinstance(exc, LimitTimeout):
        return T.RATE_LIMIT_EXCEEDED
    return T.SERVICE_UNAVAILABLE if exc.retryable else None


def _google(exc: BaseException, names: list[str]) -> ErrorType | None:
    found = next((_GOOGLE[name] for name in names if name in _GOOGLE), None)
    if found in (T.AUTHORIZATION_FAILED, T.RATE_LIMIT_EXCEEDED) and _mentions_quota(exc):
        return T.QUOTA_EXCEEDED
    return found


def _mentions_quota(exc: BaseException) -> bool:
    reasons = [str(getattr(exc, "reason", "")), str(exc)[:2000]]
    errors = getattr(exc, "errors", None)
    if isinstance(errors, list | tuple):
        reasons += [str(e.get("reason", "")) for e in errors[:20] if isinstance(e, Mapping)]
    text = " ".join(reasons).lower()
    return any(word in text for word in _QUOTA_WORDS)


def _http(exc: BaseException) -> ErrorType | None:
    status = _http_status(exc)
    if status is None:
        return None
    if status in (403, 429) and _mentions_quota(exc):
        return T.QUOTA_EXCEEDED
    return http_error_type(status)


def _http_status(exc: BaseException) -> int | None:
    """Return the HTTP status of an exception, from the attributes that common clients use."""
    response: Any = getattr(exc, "response", None)
    if isinstance(response, Mapping):  # botocore
        response_status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        response_status = getattr(response, "status_code", getattr(response, "status", None))
    own = (getattr(exc, name, None) for name in ("status_code", "status", "code"))
    for value in (response_status, *own):
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return int(value)
    return None


def _database(exc: BaseException, names: list[str]) -> ErrorType | None:
    found = next((_DATABASE[name] for name in names if name in _DATABASE), None)
    if found is None:
        return None
    state = getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)
    if isinstance(state, str) and state[:2] in _SQLSTATE_CLASS:
        return _SQLSTATE_CLASS[state[:2]]
    return found


def _standard(exc: BaseException) -> ErrorType | None:
    if isinstance(exc, TimeoutError):  # asyncio, socket and concurrent.futures raise it too
        return T.TIMEOUT
    if isinstance(exc, ConnectionError | socket.gaierror | socket.herror):
        return T.TRANSIENT_NETWORK
    if isinstance(exc, PermissionError):
        return T.AUTHORIZATION_FAILED
    if isinstance(exc, FileNotFoundError):
        return T.RESOURCE_NOT_FOUND
    if isinstance(exc, OSError) and exc.errno in _NETWORK_ERRNO:
        return T.TRANSIENT_NETWORK
    return None
