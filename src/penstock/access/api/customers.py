"""Routes of customers: their settings."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.access.client.customers import Customers
from penstock.server.routing.declare import RouteList

routes = RouteList("customers", "Customers and their shares of the capacity.")

routes.get("/customers/{customer_id}", Permission.READ, Customers.get)
routes.patch(
    "/customers/{customer_id}",
    Permission.OPERATE,
    Customers.set,
    covers_all_customers=True,
    example={"weight": 3, "concurrency": 20},
)
