"""Calls to Google Pub/Sub's API; its errors are translated to Penstock's.

The client library comes with the extra `pubsub` and is imported only when it is used. Calls wait
for an unreachable server up to the time in the options; an interrupted call is repeated once, which
is safe because all calls here are repeatable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from penstock.bus.transports.pubsub.options import PubsubOptions
from penstock.core.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    PenstockError,
    SettingsError,
    TransportUnavailable,
)

EMULATOR: Final = "PUBSUB_EMULATOR_HOST"
CUT_OFF: Final = "UNAVAILABLE"
_CHANNEL: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


class StaleAckIds(Conflict):
    """Ack ids of a request were invalid, or failed temporarily."""

    code = "transport.stale_ack_ids"

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.stale = {one for one, why in reasons.items() if not why.startswith("TRANSIENT_")}
        self.failed = set(reasons) - self.stale
        super().__init__()


class PubsubConnection:
    """The gRPC stubs of one project, opened on first use."""

    def __init__(self, options: PubsubOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._channel: Any = None
        self._stubs: Any = None
        require_pubsub()

    def publisher(self) -> Any:
        """Return the stubs of the service Publisher."""
        return self._opened()[0]

    def subscriber(self) -> Any:
        """Return the stubs of the service Subscriber."""
        return self._opened()[1]

    def call(self, stub: Any, request: Any, about: str, *, seconds: float | None = None) -> Any:
        """Make a call; `about` is the full name of the resource it is about."""
        import grpc  # an optional dependency

        timeout = self.options.call_seconds if seconds is None else seconds
        more = {"timeout": timeout, "metadata": self.metadata(about), "wait_for_ready": True}
        try:
            return stub(request, **more)
        except grpc.RpcError as error:
            if error.code().name != CUT_OFF:
                raise self.translated(error, about) from None
        try:
            return stub(request, **more)
        except grpc.RpcError as error:
            raise self.translated(error, about) from None

    def metadata(self, about: str) -> list[tuple[str, str]]:
        """Return the metadata of a call about a resource."""
        found = [("x-goog-request-params", f"name={quote(about, safe='')}")]
        if self.options.api_key is not None:
            found.append(("authorization", f"Bearer {self.options.api_key}"))
        return found

    def translated(self, error: Any, about: str) -> PenstockError:
        """Return the Penstock error for a gRPC error."""
        code, text = error.code().name, error.details() or ""
        found = _ack_ids(error)
        if found:
            return StaleAckIds(found)
        kind, name = (about.split("/")[-2].removesuffix("s"), about.split("/")[-1])
        if code == "NOT_FOUND":
            return NotFound(kind, name)
        if code == "ALREADY_EXISTS":
            return AlreadyExists(kind, name)
        if code in {"INVALID_ARGUMENT", "OUT_OF_RANGE", "UNIMPLEMENTED"}:
            return InvalidInput(kind, "a request that Pub/Sub accepts", name, text)
        if code in {"PERMISSION_DENIED", "UNAUTHENTICATED"}:
            return Forbidden(f"Pub/Sub denied access to {kind} {name}: {text}")
        if code == "FAILED_PRECONDITION":
            return Conflict(f"{kind} {name}: {text}")
        return TransportUnavailable(f"Pub/Sub could not process the call about {name}: {text}")

    def close(self) -> None:
        """Close the channel; idempotent."""
        with self._lock:
            stubs, self._stubs = self._stubs, None
            if stubs is not None:
                for one in stubs:
                    one.close()

    def _opened(self) -> Any:
        with self._lock:
            if self._stubs is None:
                self._stubs = self._open()
            return self._stubs

    def _open(self) -> tuple[Any, Any]:
        import grpc  # an optional dependency
        from google.pubsub_v1.services.publisher.transports import (  # as above
            PublisherGrpcTransport,
        )
        from google.pubsub_v1.services.subscriber.transports import (  # as above
            SubscriberGrpcTransport,
        )

        endpoint = self.options.endpoint or os.environ.get(EMULATOR)
        if endpoint is None:
            return PublisherGrpcTransport(), SubscriberGrpcTransport()
        channels = [grpc.insecure_channel(endpoint, _CHANNEL) for _ in range(2)]
        return (
            PublisherGrpcTransport(channel=channels[0]),
            SubscriberGrpcTransport(channel=channels[1]),
        )


def _ack_ids(error: Any) -> Mapping[str, str]:
    """Return the errors that exactly-once delivery reports, by ack id."""
    from google.rpc import error_details_pb2  # an optional dependency
    from grpc_status import rpc_status  # as above

    status = rpc_status.from_call(error)
    for detail in () if status is None else status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
            reasons = dict(info.metadata)
            if reasons and all("_FAILURE" in why for why in reasons.values()):
                return reasons
    return {}


def require_pubsub() -> None:
    """Raise SettingsError if the client library is not installed."""
    try:
        import google.pubsub_v1  # noqa: F401 - on use: an optional dependency
    except ImportError:
        raise SettingsError(
            "transport",
            "google-cloud-pubsub to be installed",
            "no google-cloud-pubsub",
            "Install it: pip install 'penstock-engine[pubsub]'",
        ) from None
