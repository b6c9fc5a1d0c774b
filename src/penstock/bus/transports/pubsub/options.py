"""Options of the Pub/Sub transport, read from its URL.

    pubsub://acme-prod
    pubsub://acme-prod?endpoint=127.0.0.1:8085

Pure. Query parameters: `endpoint` (host and port of an emulator or of Penstock's front end, without
TLS), `prefetch` (messages that a stream holds ahead of the consumer; 0 pulls one batch at a time).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from penstock.core.errors import SettingsError

PREFETCH_MAX: Final = 10_000
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PROJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9.\[\]:-]+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PubsubOptions:
    """Project, API endpoint and streaming settings."""

    project: str
    endpoint: str | None = None
    """Host and port of a server without TLS; None: Google's service, or PUBSUB_EMULATOR_HOST."""
    api_key: str | None = None
    """Key that is sent as bearer token to Penstock's front end; never part of a URL."""
    prefetch: int = 0
    """Number of messages that a streaming pull prefetches; 0 for unary pulls."""
    call_seconds: float = 30.0
    """How long a call waits for an unreachable server."""


def parse_pubsub_url(url: str) -> PubsubOptions:
    """Return the options in a URL; raise SettingsError if it is invalid."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no IPv6 address
        parts = urlsplit("")
    if parts.scheme != "pubsub" or not _PROJECT.fullmatch(parts.netloc) or parts.path:
        raise SettingsError("transport", "pubsub://PROJECT", url, "pubsub://my-project")
    endpoint, prefetch = None, 0
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "endpoint":
            if not _ENDPOINT.fullmatch(value):
                raise SettingsError("transport.endpoint", "HOST:PORT", value)
            endpoint = value
        elif name == "prefetch":
            if not _NUMBER.fullmatch(value) or int(value) > PREFETCH_MAX:
                raise SettingsError("transport.prefetch", f"0 to {PREFETCH_MAX}", value)
            prefetch = int(value)
        else:
            raise SettingsError("transport", "only the parameters endpoint and prefetch", name)
    return PubsubOptions(project=parts.netloc, endpoint=endpoint, prefetch=prefetch)
