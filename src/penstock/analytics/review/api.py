"""Routes of reviews."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.analytics.review.client import Reviews
from penstock.server.routing.declare import RouteList

routes = RouteList("reviews", "The daily checks and the weekly report.")

routes.get("/reviews/daily", Permission.READ, Reviews.health, is_slow=True)
routes.get("/reviews/weekly", Permission.READ, Reviews.weekly, is_slow=True)
