"""Explanation of a failed first connection to PostgreSQL, with a fix.

libpq reports a failed connection as text without a code. A text that names one known cause becomes
a short reason with its fix; any other (an unknown cause, several hosts that failed for different
causes, a server with messages in another language) is shown unchanged.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

VERSION_MIN: Final = 15
"""Oldest supported major version of PostgreSQL."""


class ConnectFailure(NamedTuple):
    """A reason, without final punctuation, and a sentence with the fix."""

    reason: str
    fix: str


_WHERE = "in --database-url"
_CAUSES: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), reason, fix)
    for pattern, reason, fix in (
        (
            r'database "(?P<name>[^"]*)" does not exist',
            'the server has no database "{name}"',
            f"Create it (`createdb {{name}}`), or correct the name {_WHERE}.",
        ),
        (
            r'role "(?P<name>[^"]*)" does not exist',
            'the server has no user "{name}"',
            f"Create it (`createuser {{name}}`), or correct the user {_WHERE}.",
        ),
        (
            r'password authentication failed for user "(?P<name>[^"]*)"',
            'the server rejected the password of user "{name}"',
            f"Correct the user and the password {_WHERE}; special characters are percent-encoded.",
        ),
        (
            r"no password supplied",
            "the server requires a password",
            f"Set it {_WHERE} (postgresql://user:password@host/name), in PGPASSWORD or in "
            "~/.pgpass.",
        ),
        (
            r"no pg_hba\.conf entry",
            "the server does not allow this user to connect from this machine",
            "Add a line for it to the server's pg_hba.conf and reload the server.",
        ),
        (
            r"failed to resolve host|could not translate host name|name or service not known",
            "the host name cannot be resolved",
            f"Correct the host {_WHERE}.",
        ),
        (
            r"connection refused|no such file or directory",
            "no server is listening there",
            f"Start PostgreSQL, or correct the host and port {_WHERE}.",
        ),
        (
            r"timeout expired|timed out|no route to host|network is unreachable",
            "the host did not respond in time",
            f"Correct the host and port {_WHERE}, or check the firewall.",
        ),
        (
            r"too many clients|remaining connection slots",
            "all connections of the server are in use",
            "Raise its max_connections, or lower PENSTOCK_POOL_SIZE of the running processes.",
        ),
        (
            r"the database system is (starting up|shutting down|in recovery)",
            "the server is starting or stopping",
            "Run the command again in a moment.",
        ),
        (
            r"server does not support SSL",
            "the server does not support TLS",
            f"Enable TLS on the server, or set ?sslmode=disable {_WHERE}.",
        ),
        (
            r"certificate verify failed|root certificate file",
            "the server's certificate could not be verified",
            f"Set its certificate authority with ?sslrootcert=FILE {_WHERE}.",
        ),
    )
)


def explain_failure(text: str) -> ConnectFailure:
    """Explain the error text of a driver."""
    found = [(reason, fix, match) for pattern, reason, fix in _CAUSES
             if (match := pattern.search(text)) is not None]  # fmt: skip
    if len(found) != 1:
        reason = " ".join(text.split()).rstrip(".")
        return ConnectFailure(reason, "Check --database-url and that the server is running.")
    reason, fix, match = found[0]
    return ConnectFailure(*(part.format(**match.groupdict()) for part in (reason, fix)))


def is_too_old(version: int) -> bool:
    """Return whether a server is too old, by libpq's number of its version (150004 for 15.4)."""
    return version < VERSION_MIN * 10_000


def show_version(version: int) -> str:
    """Return the usual form of libpq's version number: 15.4 for 150004, 9.6 for 90624."""
    major, minor = divmod(version, 10_000)
    return f"{major}.{minor}" if major >= 10 else f"{major}.{minor // 100}"
