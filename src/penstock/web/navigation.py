"""The navigation: entries and their counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from penstock.access.api_keys import Permission
from penstock.alerts.records import StoredAlert
from penstock.core.errors import PenstockError
from penstock.db.store import read_limit
from penstock.web.parts import address
from penstock.web.visit import PANEL_SECONDS, Visit

COUNT_SECONDS: Final = 5.0
"""Age of the counts in the navigation, at most."""
COUNT_MAX: Final = 100
TONES: Final = {"CRITICAL": "hot", "HIGH": "warm"}
"""Tone of the alerts' count by the severity of the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An entry of the navigation."""

    name: str
    label: str
    href: str
    icon: str
    group: str = ""
    covers_all: bool = False
    """Whether a key that is bound to a customer may not see it."""
    permission: Permission = Permission.READ
    is_scoped: bool = True
    """Whether it shows one customer if one is chosen."""


PLACES: Final = (
    Place(name="overview", label="Overview", href="/", icon="n-overview"),
    Place(name="alerts", label="Alerts", href="/alerts", icon="n-alerts", group="Needs you"),
    Place(
        name="letters", label="Dead letters", href="/dead-letters", icon="n-letters",
        group="Needs you",
    ),
    Place(
        name="interventions", label="Interventions", href="/interventions", icon="n-hand",
        group="Needs you",
    ),
    Place(name="grid", label="Grid", href="/grid", icon="n-grid", group="Work"),
    Place(name="flows", label="Flows", href="/flows", icon="n-flows", group="Work"),
    Place(name="runs", label="Runs", href="/runs", icon="n-runs", group="Work"),
    Place(name="backfills", label="Backfills", href="/backfills", icon="retry", group="Work"),
    Place(name="configs", label="Configs", href="/configs", icon="cal", group="Work"),
    Place(
        name="customers", label="Customers", href="/customers", icon="n-people", group="Work",
        covers_all=True, is_scoped=False,
    ),
    Place(
        name="limits", label="Limits", href="/limits", icon="n-limits", group="Shared",
        covers_all=True, is_scoped=False,
    ),
    Place(name="topics", label="Topics", href="/topics", icon="n-topics", group="Shared"),
    Place(name="trace", label="Trace an entity", href="/trace", icon="n-entity", group="Find out"),
    Place(name="trends", label="Trends", href="/trends", icon="n-trends", group="Find out"),
    Place(
        name="dependencies", label="Dependencies", href="/dependencies", icon="n-deps",
        group="Find out",
    ),
    Place(name="breakers", label="Breakers", href="/breakers", icon="blocked", group="Find out"),
    Place(
        name="system", label="System", href="/system", icon="n-system", group="Installation",
        covers_all=True, is_scoped=False,
    ),
    Place(name="audit", label="Audit", href="/audit", icon="n-audit", group="Installation"),
    Place(
        name="keys", label="Keys", href="/keys", icon="n-keys", group="Installation",
        covers_all=True, permission=Permission.ADMINISTER, is_scoped=False,
    ),
)  # fmt: skip


class Badge(NamedTuple):
    """The count of an entry, and its tone: hot, warm or empty."""

    text: str
    tone: str = ""


def counts_of(visit: Visit) -> dict[str, Badge]:
    """Return the counts that the person sees, by the name of the entry."""
    key = ("counts", visit.customer, visit.is_bound)
    return visit.reads.get(key, COUNT_SECONDS, lambda: _counts(visit))


def places_of(visit: Visit) -> list[Place]:
    """Return the entries that the person may open; their addresses keep the chosen customer."""
    role = visit.caller.principal.role
    chosen = None if visit.is_bound else visit.customer
    return [
        replace(place, href=address(place.href.strip("/"), customer=chosen))
        if chosen is not None and place.is_scoped
        else place
        for place in PLACES
        if role.has_permission(place.permission) and not (visit.is_bound and place.covers_all)
    ]


def scope_path(visit: Visit, places: Sequence[Place]) -> str:
    """Return the page to open when a customer is chosen: this one if scoped, else the overview."""
    here = {place.href.partition("?")[0] for place in places if place.is_scoped}
    return visit.path if visit.path in here else "/"


def _counts(visit: Visit) -> dict[str, Badge]:
    client = visit.client
    whose: dict[str, Any] = {"customer": visit.customer, "limit": COUNT_MAX}
    reads: dict[str, Callable[[], Badge]] = {
        "letters": lambda: Badge(_shown(client.dead_letters.count(customer=visit.customer))),
        "alerts": lambda: _alerts(client.alerts.list(state="open", sort="severity", **whose).items),
        "interventions": lambda: Badge(_shown(len(client.interventions.list(**whose).items))),
    }
    made = {}
    for name, read in reads.items():
        # An entry whose count does not load has none; its page says why.
        with contextlib.suppress(PenstockError), read_limit(PANEL_SECONDS):
            made[name] = read()
    return {name: badge for name, badge in made.items() if badge.text != "0"}


def _alerts(found: Sequence[StoredAlert]) -> Badge:
    """Return the number of open alerts, in the tone of the most severe."""
    return Badge(_shown(len(found)), TONES.get(found[0].severity, "") if found else "")


def _shown(count: int) -> str:
    return str(count) if count < COUNT_MAX else f"{COUNT_MAX - 1}+"
