"""Creation of a sink from its URL: `sqlite:PATH`, `postgresql://…` or `firestore:PROJECT`."""

from __future__ import annotations

from penstock.core.clock import Clock
from penstock.core.errors import SettingsError
from penstock.sinks.firestore.naming import parse_firestore
from penstock.sinks.firestore.sink import FirestoreSink
from penstock.sinks.postgres import PostgresSink
from penstock.sinks.protocol import Sink
from penstock.sinks.sqlite import SqliteSink
from penstock.sinks.statements import PREFIX_DEFAULT


def open_sink(url: str, *, prefix: str = PREFIX_DEFAULT, clock: Clock | None = None) -> Sink:
    """Return the sink for a URL; it connects and creates its tables on first use."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        # Three slashes before a relative path, four before an absolute one, as in SQLAlchemy.
        path = rest[3:] if rest.startswith("///") else rest
        if path:
            return SqliteSink(path, prefix=prefix, clock=clock)
    elif scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return PostgresSink(url, prefix=prefix, clock=clock)
    elif scheme == "firestore" and rest:
        return FirestoreSink(parse_firestore(url), prefix=prefix, clock=clock)
    expected = "sqlite:PATH, postgresql://… or firestore:PROJECT"
    raise SettingsError("sink", expected, scheme if rest else "no URL")
