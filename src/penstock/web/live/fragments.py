"""The part of a page that changes, rendered at most once a second for all callers with the same
view.

An open page requests its fragment (navigation, main part, tabs) after a hint. Its content depends
only on the address, the role and the customer of the caller, so callers share it.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from penstock.core.clock import Clock
from penstock.web.assets import SMALL, accepts_gzip
from penstock.web.security import HEADERS

FRAGMENT_HEADER: Final = "x-penstock-fragment"
"""Header with which the script requests a fragment; no form or link can send it."""
FRESH_SECONDS: Final = 1.0
FRAGMENTS_MAX: Final = 500
HTML: Final = "text/html; charset=utf-8"

FragmentKey: TypeAlias = tuple[str, str, str | None]
"""Address, role and customer."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """HTML that is ready to be sent."""

    body: bytes
    etag: str
    status: int
    compressed: bytes


def drawn(text: str, status: int) -> Drawn:
    """Encode, hash and compress a page or a fragment."""
    body = text.encode("utf-8", "replace")
    packed = gzip.compress(body, 5, mtime=0) if len(body) > SMALL else b""
    return Drawn(body, f'"{etag_of(body)}"', status, packed)


def etag_of(body: bytes) -> str:
    """Return the ETag of a content."""
    return hashlib.sha256(body).hexdigest()[:24]


def html_response(request: Request, text: str, status: int = 200) -> Response:
    """Return HTML as a response; 304 if the browser has it."""
    return as_response(request, drawn(text, status))


def as_response(request: Request, shown: Drawn) -> Response:
    """Return a response: compressed, with an ETag, never stored; 304 if the browser has it."""
    headers = {
        **HEADERS,
        "ETag": shown.etag,
        "Cache-Control": "no-store",
        "Vary": f"Accept-Encoding, {FRAGMENT_HEADER}",
    }
    if shown.status == 200 and request.headers.get("if-none-match") == shown.etag:
        return Response(None, 304, headers)
    if shown.compressed and accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        return Response(shown.compressed, shown.status, headers, HTML)
    return Response(shown.body, shown.status, headers, HTML)


def is_fragment(request: Request) -> bool:
    """Return whether the script requests the part of a page that changes."""
    return FRAGMENT_HEADER in request.headers


class SharedFragments:
    """Fragments of the last second; used from one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fresh: OrderedDict[FragmentKey, tuple[float, Drawn]] = OrderedDict()
        self._drawing: dict[FragmentKey, asyncio.Task[Drawn]] = {}

    def cached(self, key: FragmentKey) -> Drawn | None:
        """Return a fresh fragment; None if it must be rendered."""
        found = self._fresh.get(key)
        return found[1] if found is not None and found[0] > self._clock.monotonic() else None

    async def draw(self, key: FragmentKey, make: Callable[[], Drawn]) -> Drawn:
        """Render a fragment in a thread; requests that arrive in the meantime share it."""
        task = self._drawing.get(key)
        if task is None:
            task = asyncio.ensure_future(self._draw(key, make))
            self._drawing[key] = task
            task.add_done_callback(lambda _: self._drawing.pop(key, None))
        return await asyncio.shield(task)

    async def _draw(self, key: FragmentKey, make: Callable[[], Drawn]) -> Drawn:
        made = await run_in_threadpool(make)
        self._fresh[key] = (self._clock.monotonic() + FRESH_SECONDS, made)
        self._fresh.move_to_end(key)
        while len(self._fresh) > FRAGMENTS_MAX:
            self._fresh.popitem(last=False)
        return made
