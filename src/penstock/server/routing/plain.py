"""Routes without an API key: health checks, public keys, pushes that have their own token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.routing import Route as StarletteRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRoute:
    """A route that authenticates its caller itself, or not at all."""

    method: str
    path: str
    endpoint: Callable[..., Any]
    """Function or coroutine from Starlette's request to its response."""
    operation: Mapping[str, Any] | None = None
    """Its operation in the OpenAPI document; None if it is not part of the API."""
    schemas: Mapping[str, Any] | None = None
    """Schemas that the operation refers to."""
    is_public: bool = True
    """Whether it is served without any authentication."""

    def starlette_route(self) -> StarletteRoute:
        """Return the route for Starlette's router."""
        made = StarletteRoute(self.path, self.endpoint, methods=[self.method])
        made.methods = {self.method}  # Starlette adds HEAD to GET
        return made
