"""What the app serves: routers, models of the document, and the fast path of workers.

`assembly.routes` lists them; the server names no subject.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter
from pydantic import BaseModel

from penstock.client import Client
from penstock.server.auth import KeyCache
from penstock.server.overload.middleware import FastPath
from penstock.server.routing.declare import ApiRoute, RouteList


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The routes of the API."""

    routers: tuple[APIRouter, ...]
    declared: tuple[RouteList, ...] = ()
    models: tuple[type[BaseModel], ...]
    """Models that no route refers to directly, but the document describes."""
    fastpath: Callable[[KeyCache, Client], FastPath]
    """Builds the fast path for worker calls."""

    @property
    def all(self) -> list[ApiRoute]:
        """Every declared route."""
        return [route for listed in self.declared for route in listed.routes]
