"""Builds the site: every page and every action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.access.api_keys import Permission
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.web.actions.bus import BUS_ACTIONS
from penstock.web.actions.control import CONTROL_ACTIONS
from penstock.web.actions.dead_letters import DEAD_LETTER_ACTIONS
from penstock.web.actions.dead_letters_matching import MATCHING_ACTIONS
from penstock.web.actions.gates import GATE_ACTIONS
from penstock.web.actions.many import MANY_ACTIONS
from penstock.web.actions.overrides import OVERRIDE_ACTIONS
from penstock.web.actions.pauses import PAUSE_ACTIONS
from penstock.web.actions.recovery import RECOVERY_ACTIONS
from penstock.web.actions.serving import Actions
from penstock.web.actions.settings import SETTING_ACTIONS
from penstock.web.actions.work import WORK_ACTIONS
from penstock.web.live.stream import Live
from penstock.web.login.oidc import OidcLogin
from penstock.web.login.own_sessions import OwnSessions
from penstock.web.login.provider import IdentityProvider
from penstock.web.login.proxies import TrustedProxies
from penstock.web.login.sign_in import SignIn
from penstock.web.pages import (
    alerts,
    approvals,
    audit,
    backfills,
    capacity,
    customers,
    dead_letters,
    dependencies,
    messages,
    schedules,
    system,
    tracing,
    trends,
)
from penstock.web.pages.flows import flow, grid
from penstock.web.pages.overview.page import overview
from penstock.web.pages.runs import run, run_list
from penstock.web.palette import Palette
from penstock.web.site import PageRoute, Site

PAGES: Final = (
    PageRoute(path="/", view=overview),
    PageRoute(path="/alerts", view=alerts.alerts),
    PageRoute(path="/alerts/{alert_id}", view=alerts.alert),
    PageRoute(path="/dead-letters", view=dead_letters.dead_letters),
    PageRoute(path="/dead-letters/{dead_letter_id}", view=dead_letters.dead_letter),
    PageRoute(path="/interventions", view=approvals.interventions),
    PageRoute(path="/interventions/{intervention_id}", view=approvals.intervention),
    PageRoute(path="/grid", view=grid.grid),
    PageRoute(path="/flows", view=flow.flows),
    PageRoute(path="/flows/{flow_id}", view=flow.flow),
    PageRoute(path="/runs", view=run_list.runs),
    PageRoute(path="/runs/{run_id}", view=run.run),
    PageRoute(path="/backfills", view=backfills.backfills),
    PageRoute(path="/backfills/{backfill_id}", view=backfills.backfill),
    PageRoute(path="/configs", view=schedules.configs),
    PageRoute(path="/configs/{config_id}", view=schedules.config),
    PageRoute(path="/customers", view=customers.customers, covers_all=True),
    PageRoute(path="/customers/{customer}", view=customers.customer),
    PageRoute(path="/limits", view=capacity.limits, covers_all=True),
    PageRoute(path="/limits/{name:path}", view=capacity.limit, covers_all=True),
    PageRoute(path="/topics", view=messages.topics),
    PageRoute(path="/topics/{name:path}", view=messages.topic),
    PageRoute(path="/subscriptions/{name:path}", view=messages.subscription),
    PageRoute(path="/messages/{message_id}", view=messages.message),
    PageRoute(path="/trace", view=tracing.trace),
    PageRoute(path="/find", view=tracing.find),
    PageRoute(path="/audit", view=audit.audit),
    PageRoute(path="/trends", view=trends.trends),
    PageRoute(path="/dependencies", view=dependencies.dependencies),
    PageRoute(path="/breakers", view=system.breakers),
    PageRoute(path="/system", view=system.system, covers_all=True),
    PageRoute(path="/keys", view=system.keys, covers_all=True, permission=Permission.ADMINISTER),
)


ACTIONS: Final = (
    *DEAD_LETTER_ACTIONS,
    *MATCHING_ACTIONS,
    *WORK_ACTIONS,
    *GATE_ACTIONS,
    *OVERRIDE_ACTIONS,
    *CONTROL_ACTIONS,
    *PAUSE_ACTIONS,
    *RECOVERY_ACTIONS,
    *MANY_ACTIONS,
    *BUS_ACTIONS,
    *SETTING_ACTIONS,
)


def build_site(
    client: Client,
    clock: Clock,
    *,
    provider: IdentityProvider | None = None,
    public_url: str = "",
    environment: str = "",
    trusted_proxies: Sequence[str] = (),
) -> Site:
    """Return the dashboard over a client; with an identity provider, people can log in without a
    key.
    """
    site = Site(client, clock, PAGES, environment)
    site.proxies = TrustedProxies(trusted_proxies)
    sign_in = SignIn(site, "" if provider is None else provider.settings.label)
    if provider is not None:
        OidcLogin(site, sign_in, provider, public_url)
    OwnSessions(site)
    Live(site, site.hub)
    Palette(site)
    Actions(site, ACTIONS)
    return site
