"""Detection of a connection pooler between this process and PostgreSQL, for `penstock doctor`.

A pooler serves many sessions, so the process id that it reports for a connection is not that of the
session. In transaction mode an idle connection holds no session, so another connection gets it.
"""

from __future__ import annotations

from psycopg import Connection

from penstock.db.postgres.connector import Connector, Pooler

TRIES = 5


def detect_pooler(url: str) -> Pooler:
    """Return the pooler behind a URL. Under load, transaction mode may look like session mode."""
    # Connect as if behind a pooler in transaction mode, which works with every pooler.
    connector = Connector(url, "penstock-doctor", pooler="transaction")
    with connector.open() as first:
        seen = {_session_pid(first)}
        if first.info.backend_pid in seen:
            return "none"
        with connector.open() as second:
            for _ in range(TRIES):
                other = _session_pid(second)
                seen.add(_session_pid(first))
                if other in seen or len(seen) > 1:
                    return "transaction"
    return "session"


def _session_pid(connection: Connection) -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0
