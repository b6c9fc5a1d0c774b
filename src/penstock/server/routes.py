"""What the app serves: declared routes, plain routes, and the fast path of workers.

`assembly.routes` lists them; the server names no subject.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.client import Client
from penstock.server.auth import KeyCache
from penstock.server.overload.middleware import FastPath
from penstock.server.routing.declare import ApiRoute, RouteList
from penstock.server.routing.plain import PlainRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The routes of the API."""

    declared: tuple[RouteList, ...]
    plain: tuple[PlainRoute, ...]
    fastpath: Callable[[KeyCache, Client], FastPath]
    """Builds the fast path for worker calls."""

    @property
    def all(self) -> list[ApiRoute]:
        """Every declared route, in the order in which paths are matched."""
        found = [route for listed in self.declared for route in listed.routes]
        # A literal path comes before one with a parameter that would match it too.
        return sorted(found, key=lambda route: route.path.count("{"))
