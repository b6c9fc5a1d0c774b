"""The access table of the API: permission by route, and the routes that cover all customers.

Tests that walk over all routes keep the order of the calls: later ones use what earlier ones left.
"""

from __future__ import annotations

from penstock.assembly.routes import ROUTES as API
from penstock.server import access
from tests.server.scene import CALLS

_PERMISSIONS = {**access.ROUTES, **{route.name: route.permission for route in API.all}}
_ORDER = list(CALLS)
ROUTES = {name: _PERMISSIONS[name] for name in sorted(_PERMISSIONS, key=_ORDER.index)}
ALL_CUSTOMERS = access.ALL_CUSTOMERS | {
    route.name for route in API.all if route.covers_all_customers
}
