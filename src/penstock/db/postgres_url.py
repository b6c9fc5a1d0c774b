"""PostgreSQL URLs, parsed as libpq does, so that no part of a password is shown or misread.

libpq ends the user info at the first `@` unless a `/` comes before it; `#` and `?` have no meaning
there. An unencoded `/` or `@` in a password therefore moves a part of it into host, port or
database name, which error messages quote. Such a URL is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

WRITABLE: Final = ("any", "read-write", "primary", "prefer-standby")
"""Values of `target_session_attrs` with which a connection may accept writes."""
SESSION_ATTRS: Final = (*WRITABLE, "read-only", "standby")
CONNECT_SECONDS: Final = 5
"""Maximum time to wait for each host."""
# A server that disappeared without closing its connections is detected after 15 s while data is
# sent to it, and after 25 s while waiting for a response.
_TIMEOUTS: Final[Mapping[str, int]] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

_SPLIT: Final = re.compile(r"[@/]")
_HOSTS: Final = re.compile(r"[A-Za-z0-9._%-]*|\[[0-9A-Fa-f:.%]+\]")
_PORT: Final = re.compile(r"[0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The parts of a URL."""

    address: str
    """Hosts with ports, and the database name; never user info or parameters."""
    secrets: tuple[str, ...] = field(repr=False)
    """The password, encoded and decoded, longest first."""
    is_clear: bool
    """Whether each part is plausible; otherwise the user info is probably not percent-encoded."""
    hosts: tuple[str, ...] = ()
    """Hosts with ports, in the order in which they are tried, including `host` from the query."""
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Query parameters; of several with the same name, the last."""

    @property
    def session_attrs(self) -> str:
        """Value of `target_session_attrs`; with several hosts, only one that accepts writes."""
        default = "read-write" if len(self.hosts) > 1 else "any"
        return self.parameters.get("target_session_attrs", default)


def parse_postgres_url(url: str) -> PostgresUrl:
    """Parse a URL; for an ambiguous one, everything up to the last `@` counts as secret."""
    rest = url.partition("://")[2]
    found = _SPLIT.search(rest)
    info = ""
    if found is not None and found[0] == "@":
        info, rest = rest[: found.start()], rest[found.end() :]
    address, _, query = rest.partition("?")
    hosts, _, name = address.partition("/")
    is_clear = "@" not in address and "#" not in address and all(map(_is_host, hosts.split(",")))
    password = info.partition(":")[2]
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    parameters = {unquote(name): unquote(value) for name, _, value in pairs}
    secrets = {password, unquote(password)}
    secrets |= {unquote(value) for name, _, value in pairs if unquote(name) == "password"}
    if not is_clear:
        hidden = url.partition("://")[2].rpartition("@")[0]
        secrets |= {part for part in re.split(r"[:/@?#]", f"{info}:{hidden}") if len(part) > 2}
    shown = f"{hosts}/{name}" if name else hosts
    kept = sorted(filter(None, secrets), key=len, reverse=True)
    listed = parameters.get("host") or parameters.get("hostaddr") or hosts
    return PostgresUrl(
        shown if is_clear else "", tuple(kept), is_clear, tuple(listed.split(",")), parameters
    )


def postgres_url_problem(url: str) -> tuple[str, str, str] | None:
    """Return (expected, found, fix) for a URL that is unambiguous but not usable."""
    parsed = parse_postgres_url(url)
    shown = ",".join(parsed.hosts)
    if len(parsed.hosts) > 1 and not all(parsed.hosts):
        return "a host on each side of a comma", shown, "For example: postgresql://a:5432,b:5432/x"
    for host in () if {"host", "hostaddr"} & parsed.parameters.keys() else parsed.hosts:
        _, colon, port = ("", "", "") if host.endswith("]") else host.rpartition(":")
        if colon and port and not 0 < int(port) < 65_536:
            return "a port from 1 to 65535", shown, "Write each host as name:port."
    ports = parsed.parameters.get("port", "").split(",")
    if len(ports) not in (1, len(parsed.hosts)):
        found = f"{len(ports)} ports for {len(parsed.hosts)} hosts"
        return "one port, or one for each host", found, "Write each host as name:port."
    if parsed.session_attrs not in SESSION_ATTRS:
        fix = f"Use one of {', '.join(SESSION_ATTRS)}."
        return "a known target_session_attrs", parsed.session_attrs[:40], fix
    return None


def standby_preferred(url: str) -> str:
    """Return the URL of a replica; of several hosts, one that is a standby is preferred."""
    parsed = parse_postgres_url(url)
    if len(parsed.hosts) == 1 or "target_session_attrs" in parsed.parameters:
        return url
    return f"{url}{'&' if '?' in url else '?'}target_session_attrs=prefer-standby"


def connection_options(url: str, **more: Any) -> dict[str, Any]:
    """Return the connection options of a URL: `more`, timeouts, and which host to accept.

    Parameters in the URL take precedence, except over `more`; `options` of both are joined.
    """
    parsed = parse_postgres_url(url)
    defaults: dict[str, Any] = dict(_TIMEOUTS)
    if len(parsed.hosts) > 1:
        defaults["target_session_attrs"] = parsed.session_attrs
    chosen = {name: v for name, v in defaults.items() if name not in parsed.parameters}
    if more.get("options") and parsed.parameters.get("options"):
        more["options"] = f"{more['options']} {parsed.parameters['options']}"
    return {**chosen, **more}


def _is_host(text: str) -> bool:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, ""
    return bool(_HOSTS.fullmatch(host) and _PORT.fullmatch(port))
