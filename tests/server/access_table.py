"""The access table of the API, from its declared routes.

Tests that walk over all routes keep the order of the calls: later ones use what earlier ones left.
"""

from __future__ import annotations

from penstock.assembly.routes import ROUTES as API
from tests.server.scene import CALLS

_ORDER = list(CALLS)
_PERMISSIONS = {route.name: route.permission for route in API.all}
ROUTES = {name: _PERMISSIONS[name] for name in sorted(_PERMISSIONS, key=_ORDER.index)}
ALL_CUSTOMERS = frozenset(route.name for route in API.all if route.covers_all_customers)
PUBLIC = frozenset(route.path for route in API.plain if route.is_public)
TOKEN_AUTHENTICATED = frozenset(
    f"{route.method} {route.path}" for route in API.plain if not route.is_public
)
