"""PostgreSQL URLs, parsed as libpq does, so that no part of a password is shown or misread.

libpq ends the user info at the first `@` unless a `/` comes before it; `#` and `?` have no meaning
there. An unencoded `/` or `@` in a password therefore moves a part of it into host, port or
database name, which error messages quote. Such a URL is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote

_SPLIT: Final = re.compile(r"[@/]")
_HOSTS: Final = re.compile(r"[A-Za-z0-9._%-]*|\[[0-9A-Fa-f:.%]+\]")
_PORT: Final = re.compile(r"[0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The parts of a URL."""

    address: str
    """Hosts with ports, and the database name; never user info or parameters."""
    secrets: tuple[str, ...] = field(repr=False)
    """The password as written and decoded, longest first."""
    is_clear: bool
    """Whether each part can be what it stands for; otherwise the user info is not encoded."""


def parse_postgres_url(url: str) -> PostgresUrl:
    """Parse a URL; for one that is not clear, everything up to the last `@` counts as secret."""
    rest = url.partition("://")[2]
    found = _SPLIT.search(rest)
    info = ""
    if found is not None and found[0] == "@":
        info, rest = rest[: found.start()], rest[found.end() :]
    address, _, query = rest.partition("?")
    hosts, _, name = address.partition("/")
    is_clear = "@" not in address and "#" not in address and all(map(_is_host, hosts.split(",")))
    password = info.partition(":")[2]
    given = parse_qs(query).get("password", [])
    secrets = {password, unquote(password), *given}
    if not is_clear:
        hidden = url.partition("://")[2].rpartition("@")[0]
        secrets |= {part for part in re.split(r"[:/@?#]", f"{info}:{hidden}") if len(part) > 2}
    shown = f"{hosts}/{name}" if name else hosts
    kept = sorted(filter(None, secrets), key=len, reverse=True)
    return PostgresUrl(shown if is_clear else "", tuple(kept), is_clear)


def _is_host(text: str) -> bool:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, ""
    return bool(_HOSTS.fullmatch(host) and _PORT.fullmatch(port))
