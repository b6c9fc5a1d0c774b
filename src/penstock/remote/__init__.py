"""The generated Python client of the API; standard library only.

    with connect("https://penstock.example", key=key) as api:
        api.configs.create_config("acme", {"pipeline_template": "nightly", ...})

`api/` is written by `generate` from the OpenAPI document; `transport` sends the requests. The
command line's `--url` stands on it.
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
    """The API behind a URL; see `Transport` for what the options mean."""
    transport = Transport(url, key=key, timeout=timeout, attempts=attempts, allow_plain=allow_plain)
    try:
        yield Api(transport)
    finally:
        transport.close()
