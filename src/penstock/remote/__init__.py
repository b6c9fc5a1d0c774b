"""The client over HTTP: the same use cases and records as the local client.

    with connect("https://penstock.example", key=key) as client:
        run = client.runs.submit(Submission(pipeline="nightly", customer="acme"))
        print(client.runs.get(run.run_id).state)

`client` builds the requests from the declared routes, `transport` sends them. The command line uses
it for `--url`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from penstock.remote.client import RemoteClient
from penstock.remote.producer import SpoolingProducer
from penstock.remote.spool import SpoolFull
from penstock.remote.transport import Transport

__all__ = ["RemoteClient", "SpoolFull", "SpoolingProducer", "Transport", "connect"]


@contextlib.contextmanager
def connect(
    url: str,
    *,
    key: str | None = None,
    timeout: float = 30.0,
    attempts: int = 4,
    allow_plain: bool = False,
) -> Iterator[RemoteClient]:
    """Open a client of the API at a URL; `Transport` documents the options."""
    transport = Transport(url, key=key, timeout=timeout, attempts=attempts, allow_plain=allow_plain)
    try:
        yield RemoteClient(transport)
    finally:
        transport.close()
