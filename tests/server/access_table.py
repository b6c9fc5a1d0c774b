"""The access table of the API: permission by route, and the routes that cover all customers."""

from __future__ import annotations

from penstock.assembly.routes import ROUTES as API
from penstock.server import access

ROUTES = {**access.ROUTES, **{route.name: route.permission for route in API.all}}
ALL_CUSTOMERS = access.ALL_CUSTOMERS | {
    route.name for route in API.all if route.covers_all_customers
}
