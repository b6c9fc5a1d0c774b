"""Clients of BigQuery and texts for their errors; the library comes with the extra `bigquery`.

With `BIGQUERY_EMULATOR_HOST` set, the library talks to that server, and no credentials are needed.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any, Final

from penstock.core.error_classification import classify
from penstock.core.errors import InvalidInput
from penstock.core.retry import ErrorType
from penstock.probes.bigquery.address import BigQueryAddress

EMULATOR: Final = "BIGQUERY_EMULATOR_HOST"
LIBRARY: Final = "google.cloud.bigquery"

_REASONS: Final = {
    ErrorType.AUTHENTICATION_FAILED: "BigQuery did not accept the credentials",
    ErrorType.AUTHORIZATION_FAILED: "BigQuery denied access (grant roles/bigquery.jobUser on the "
    "project, and roles/bigquery.dataViewer or dataEditor on the dataset)",
    ErrorType.RESOURCE_NOT_FOUND: "BigQuery did not find the resource",
    ErrorType.QUOTA_EXCEEDED: "a BigQuery quota or rate limit is exhausted",
    ErrorType.RATE_LIMIT_EXCEEDED: "a BigQuery quota or rate limit is exhausted",
    ErrorType.SERVICE_UNAVAILABLE: "BigQuery is not available",
    ErrorType.TRANSIENT_NETWORK: "BigQuery is not reachable",
    ErrorType.TIMEOUT: "BigQuery did not respond in time",
    ErrorType.VALIDATION_ERROR: "BigQuery refused the request",
}
_REQUEST: Final = re.compile(r"(?:GET|POST|PUT|PATCH|DELETE) https?://\S{1,2000}: ")
_DETAILS: Final = re.compile(r"\s*(?:Location: \S+\s+)?Job ID: \S+\s*")


def require_bigquery(field: str) -> Any:
    """Import the optional library; raise InvalidInput that names the extra if it is missing."""
    try:
        return import_module(LIBRARY)
    except ImportError:
        fix = "Install it with: pip install 'penstock-engine[bigquery]'"
        raise InvalidInput(field, "the package google-cloud-bigquery", "none", fix) from None


def open_client(address: BigQueryAddress, library: Any) -> Any:
    """Return a client with the default credentials of the environment."""
    more: dict[str, Any] = {}
    if os.environ.get(EMULATOR):
        # Optional, like the library itself.
        from google.auth.credentials import AnonymousCredentials

        more["credentials"] = AnonymousCredentials()  # type: ignore[no-untyped-call]
    return library.Client(project=address.project, location=address.location, **more)


def google_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a call to the library raises."""
    try:
        from google.api_core.exceptions import GoogleAPIError  # optional, like the library itself
        from google.auth.exceptions import GoogleAuthError  # the same
        from requests.exceptions import RequestException  # the same
    except ImportError:
        return (OSError,)
    return (GoogleAPIError, GoogleAuthError, RequestException, OSError)


def failure_text(error: BaseException) -> str:
    """Return the text of an error: its kind, and BigQuery's response."""
    cause = getattr(error, "cause", None)
    origin = cause if isinstance(cause, BaseException) else error
    text = str(getattr(origin, "message", "") or origin)
    text = " ".join(_DETAILS.sub(" ", _REQUEST.sub("", text[:5_000])).split())
    try:
        reason = _REASONS.get(ErrorType(classify(origin)))
    except ValueError:
        reason = None
    return f"{reason}: {text}" if reason else f"{type(origin).__name__}: {text}"
