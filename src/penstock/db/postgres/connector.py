"""Connections to the server that a URL names, or to the one of several that accepts writes.

After a failover, the promoted host is found by trying the hosts of the URL in turn, each for at
most `connect_timeout`. The host that accepted the last connection is tried first, so that a dead
one delays a process once and not every connection. TCP keepalives detect a server that disappeared
without closing its connections (the times are in `postgres_url`).

A pooler such as PgBouncer rejects server settings at the start of a connection. In session mode
they are applied right after it; in transaction mode each transaction may run in another session, so
no session state can be used: no settings, prepared statements or LISTEN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from psycopg.conninfo import conninfo_to_dict

from penstock.db.postgres.pipeline import PostgresSession
from penstock.db.postgres_url import connection_options

Pooler = Literal["none", "session", "transaction"]


class Connector:
    """Opens the connections of a store, named for `pg_stat_activity`."""

    def __init__(
        self,
        url: str,
        name: str,
        session: type[PostgresSession] = PostgresSession,
        pooler: Pooler = "none",
    ) -> None:
        """Connect to `url` on use; raise psycopg.ProgrammingError if libpq rejects the URL."""
        self.url = url
        self.name = name
        self.keeps_session = pooler != "transaction"
        self._is_direct = pooler == "none"
        self._session = session
        self._hosts = _hosts(url)
        self._last = 0

    def open(self, role: str = "", *, settings: Mapping[str, str] | None = None) -> PostgresSession:
        """Open a connection in autocommit mode; session settings are applied if the session is
        kept.
        """
        first, hosts = self._last, self._hosts
        more: dict[str, Any] = {}
        if settings and self._is_direct:
            more["options"] = " ".join(f"-c {name}={value}" for name, value in settings.items())
        if hosts:  # the host that worked last, then the others in their order
            order = [hosts[first], *hosts[:first], *hosts[first + 1 :]]
            for place, kind in enumerate(("host", "hostaddr", "port")):
                if any(one[place] for one in order):
                    more[kind] = ",".join(one[place] for one in order)
        connection = self._session.connect(
            self.url,
            autocommit=True,
            **connection_options(
                self.url,
                application_name=f"{self.name}-{role}" if role else self.name,
                client_encoding="utf8",
                **more,
            ),
        )
        if hosts:
            self._remember(connection)
        connection.keeps_statements = self.keeps_session
        if not self.keeps_session:
            connection.prepare_threshold = None
        elif settings and not self._is_direct:
            connection.execute(set_config(settings, is_local=False).encode())
        return connection

    def _remember(self, connection: PostgresSession) -> None:
        info = connection.info
        for number, (host, address, port) in enumerate(self._hosts):
            if info.host in (host, address) and str(info.port) == (port or "5432"):
                self._last = number


def set_config(settings: Mapping[str, str], *, is_local: bool) -> str:
    """Return a statement that applies settings to the transaction or the session."""
    scope = "true" if is_local else "false"
    calls = [f"set_config('{name}', '{value}', {scope})" for name, value in settings.items()]
    return f"SELECT {', '.join(calls)}"


def _hosts(url: str) -> list[tuple[str, str, str]]:
    """Return (host, address, port) of each host of a URL that has several, otherwise nothing."""
    found = conninfo_to_dict(url)
    lists = [str(found.get(name) or "").split(",") for name in ("host", "hostaddr", "port")]
    count = max(len(lists[0]), len(lists[1]))
    if count == 1:
        return []
    # A missing address stays empty; a single port applies to all hosts.
    hosts, addresses, ports = (one * count if len(one) == 1 else one for one in lists)
    return list(zip(hosts, addresses, ports, strict=True))
