"""Options of the NATS transport, read from its URL.

    nats://user:password@one:4222,two:4222,three:4222?replicas=3

Pure. Query parameters: `replicas` (copies of every stream, 1 to 5), `prefix` (first word of all
stream names and subjects), `partitions` (of new topics, for ordering keys), `creds` (a credentials
file of NATS).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from penstock.core.errors import SettingsError

SCHEMES: Final = ("nats", "tls")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9-]{1,40}")
_NUMBERS: Final = {"replicas": 5, "partitions": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions:
    """Addresses of the servers, and settings of new streams."""

    servers: tuple[str, ...]
    prefix: str = "penstock"
    replicas: int = 1
    partitions: int = 8
    """Number of ordered shards over which the ordering keys of a new topic are spread."""
    credentials: str | None = None
    request_seconds: float = 5.0
    """How long one request to the server may take."""
    publish_seconds: float = 30.0
    """How long a publish is repeated while the servers elect a leader or restart."""
    speed: float = 1.0
    """Factor by which deadlines and delays are shortened; for tests."""


def parse_nats_url(url: str) -> NatsOptions:
    """Return the options in a URL; raise SettingsError if it is invalid."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no IPv6 address
        parts = urlsplit("")
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise SettingsError(
            "transport", "nats://HOST:PORT", url.partition(":")[0], "nats://127.0.0.1:4222"
        )
    login, at, hosts = parts.netloc.rpartition("@")
    servers = tuple(f"{parts.scheme}://{login}{at}{host}" for host in hosts.split(",") if host)
    given: dict[str, str | int] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _NUMBERS:
            if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= _NUMBERS[name]:
                raise SettingsError(f"transport.{name}", f"1 to {_NUMBERS[name]}", value)
            given[name] = int(value)
        elif name == "prefix":
            if not _PREFIX.fullmatch(value):
                raise SettingsError("transport.prefix", "1 to 40 letters, digits and '-'", value)
            given[name] = value
        elif name == "creds":
            given["credentials"] = value
        else:
            known = "replicas, prefix, partitions or creds"
            raise SettingsError("transport", f"only the parameters {known}", name)
    return NatsOptions(servers=servers, **given)  # type: ignore[arg-type]
