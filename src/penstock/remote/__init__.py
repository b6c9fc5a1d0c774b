"""The generated Python client of the API; standard library only.

    with connect("https://penstock.example", key=key) as api:
        api.configs.create_config("acme", {"pipeline_template": "nightly", ...})

`generate` writes `api/` and `shapes/` from the OpenAPI document; `transport` sends the requests.
The command line uses the client for `--url`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from penstock.remote.api import Api
from penstock.remote.transport import Transport

__all__ = ["Api", "Transport", "connect"]


@contextlib.contextmanager
def connect(
    url: str,
    *,
    key: str | None = None,
    timeout: float = 30.0,
    attempts: int = 4,
    allow_plain: bool = False,
) -> Iterator[Api]:
    """Open a client of the API at a URL; `Transport` documents the options."""
    transport = Transport(url, key=key, timeout=timeout, attempts=attempts, allow_plain=allow_plain)
    try:
        yield Api(transport)
    finally:
        transport.close()
