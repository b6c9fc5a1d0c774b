"""Errors as gRPC statuses: codes that Pub/Sub clients handle, and details of stale ack ids."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from penstock.core.errors import (
    AlreadyExists,
    Conflict,
    DuplicateRequest,
    Forbidden,
    InvalidInput,
    NotFound,
    PenstockError,
    StaleVersion,
    StoreError,
)
from penstock.core.redact import redact_text
from penstock.server.problems import Refused

log = logging.getLogger(__name__)

Code = grpc.StatusCode
DOMAIN: Final = "pubsub.googleapis.com"
STALE_ACK_ID: Final = "PERMANENT_FAILURE_INVALID_ACK_ID"
TRY_AGAIN: Final = "TRANSIENT_FAILURE_OTHER_ACK_IDS_INVALID"
"""Reason returned for the valid ack ids of a request that also has invalid ones; repeating them has
no effect.
"""

_REFUSALS: Final[Mapping[int, grpc.StatusCode]] = {
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    429: Code.RESOURCE_EXHAUSTED,
    503: Code.UNAVAILABLE,
}
_CODES: Final[tuple[tuple[type[PenstockError], grpc.StatusCode], ...]] = (
    (InvalidInput, Code.INVALID_ARGUMENT),
    (NotFound, Code.NOT_FOUND),
    (AlreadyExists, Code.ALREADY_EXISTS),
    (Forbidden, Code.PERMISSION_DENIED),
    (StaleVersion, Code.ABORTED),
    (Conflict, Code.FAILED_PRECONDITION),
    (DuplicateRequest, Code.INVALID_ARGUMENT),
    (StoreError, Code.UNAVAILABLE),
)


class WireError(Exception):
    """A status to end the call with; `ack_ids` has the reason for each invalid ack id."""

    def __init__(
        self, code: grpc.StatusCode, text: str, ack_ids: Mapping[str, str] | None = None
    ) -> None:
        self.code = code
        self.text = text
        self.ack_ids = dict(ack_ids or {})
        super().__init__(text)

    @property
    def trailing(self) -> tuple[tuple[str, bytes], ...]:
        """Trailing metadata with the details."""
        if not self.ack_ids:
            return ()
        info = error_details_pb2.ErrorInfo(
            reason=STALE_ACK_ID, domain=DOMAIN, metadata=self.ack_ids
        )
        status = status_pb2.Status(code=self.code.value[0], message=self.text)
        status.details.add().Pack(info)
        return (("grpc-status-details-bin", status.SerializeToString()),)


def unsupported(field: str, why: str) -> WireError:
    """Return the error for a feature of Google's service that the bus does not support."""
    return WireError(Code.UNIMPLEMENTED, f"{field}: not supported by Penstock. {why}")


def as_wire_error(error: Exception) -> WireError:
    """Return the status of an error; an unknown error is logged and reported without its text."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, Refused):
        return WireError(_REFUSALS.get(error.status, Code.UNKNOWN), error.detail)
    if isinstance(error, PenstockError):
        for kind, code in _CODES:
            if isinstance(error, kind):
                if isinstance(error, StoreError):
                    log.warning("%s: %s", error.code, redact_text(error.message))
                    return WireError(code, "The store is unavailable or busy; try again.")
                return WireError(code, redact_text(error.message))
    log.error("a Pub/Sub call failed", exc_info=error)
    return WireError(Code.INTERNAL, "An internal error occurred; the log has the details.")
