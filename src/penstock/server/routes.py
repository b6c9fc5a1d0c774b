"""The routes of the app: declared routes, plain routes, and the fast path of workers.

`assembly.routes` lists them; the server names no subject.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from penstock.client import Client
from penstock.core.clock import Clock
from penstock.server.auth import KeyCache
from penstock.server.overload.middleware import FastPath
from penstock.server.routing.declare import ApiRoute, RouteList
from penstock.server.routing.plain import PlainRoute


class PageSite(Protocol):
    """The dashboard pages that are served alongside the API."""

    @property
    def routes(self) -> Sequence[StarletteRoute]:
        """The routes of the pages and their files."""
        ...

    def is_known(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request has a session that was valid before."""
        ...

    async def absent(self, request: Request) -> Response:
        """Return the "not found" page."""
        ...

    def unavailable(self, request: Request, *, is_busy: bool) -> Response:
        """Return the page shown while the database does not respond; needs no database."""
        ...

    def release(self) -> None:
        """End open streams, because the server stops; thread-safe and idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The routes of the API."""

    declared: tuple[RouteList, ...]
    plain: tuple[PlainRoute, ...]
    fastpath: Callable[[KeyCache, Client], FastPath]
    """Builds the fast path for worker calls."""
    pages: Callable[[Client, Clock], PageSite] | None = None
    """Builds the dashboard; None for an API without one."""

    @property
    def all(self) -> list[ApiRoute]:
        """Every declared route, in the order in which paths are matched."""
        found = [route for listed in self.declared for route in listed.routes]
        # A literal path comes before one with a parameter that would match it too.
        return sorted(found, key=lambda route: route.path.count("{"))
