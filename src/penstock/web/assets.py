"""The files that pages load: named by their content, compressed once, cached permanently."""

from __future__ import annotations

import functools
import gzip
import hashlib
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FILES: Final = {
    "penstock.css": ("penstock.css", "dialogs.css"),
    "penstock.js": tuple(
        f"js/{name}.js" for name in ("core", "morph", "live", "dialog", "palette", "keys")
    ),
    "theme.js": ("theme.js",),
    "icon.svg": ("icon.svg",),
}
"""Served assets, and the files that they are built from."""
FOREVER: Final = "public, max-age=31536000, immutable"
SMALL: Final = 500
"""Size in bytes below which files are not compressed."""


@functools.cache
def asset_url(name: str) -> str:
    """Return the address of a file, which contains a hash of its content."""
    stem, _, ending = name.rpartition(".")
    return f"/assets/{stem}.{hashlib.sha256(_content(name)).hexdigest()[:12]}.{ending}"


async def serve_asset(request: Request) -> Response:
    """Serve a file under its current address."""
    found = _by_url().get(request.url.path)
    if found is None:
        return Response("There is no such file.", 404, media_type="text/plain")
    headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    kind = TYPES[found.rpartition(".")[2]]
    if accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        return Response(_compressed(found), 200, headers, kind)
    return Response(_content(found), 200, headers, kind)


def accepts_gzip(request: Request) -> bool:
    """Return whether the browser accepts gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


@functools.cache
def _by_url() -> dict[str, str]:
    return {asset_url(name): name for name in FILES}


@functools.cache
def _content(name: str) -> bytes:
    folder = files("penstock.web").joinpath("static")
    return b"\n".join(folder.joinpath(part).read_bytes() for part in FILES[name])


@functools.cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_content(name), 9, mtime=0)
