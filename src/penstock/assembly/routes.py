"""Every route of the API, by subject."""

from __future__ import annotations

from typing import Final

from penstock.access.api import customers, keys
from penstock.alerts import api as alerts
from penstock.analytics import api as analytics
from penstock.analytics.review import api as reviews
from penstock.bus.api import deliveries, schemas, snapshots, subscriptions, topics
from penstock.bus.incoming import api as incoming
from penstock.client import Client
from penstock.dead_letters import api as dead_letters
from penstock.detection import api as detection
from penstock.flows import api as flows
from penstock.flows.breakers import api as breakers
from penstock.flows.gates import api as gates
from penstock.flows.items import api as items
from penstock.limits import api as limits
from penstock.monitoring import api as monitoring
from penstock.monitoring.exports import api as exports
from penstock.recovery import api as recovery
from penstock.runs import api as runs
from penstock.runs.external import api as external
from penstock.runs.external.api_fastpath import WorkerFastPath
from penstock.schedules.api import configs, load_map, pauses, tick
from penstock.server import health
from penstock.server.auth import KeyCache
from penstock.server.polling.group_commit import GroupCommit
from penstock.server.routes import Routes
from penstock.shipping import api as shipping
from penstock.slos import api as slos
from penstock.tracking import api as tracking
from penstock.usage import api as usage
from penstock.web.build import build_site

_MODULES: Final = (
    tick,
    configs,
    load_map,
    external,
    runs,
    dead_letters,
    topics,
    subscriptions,
    deliveries,
    snapshots,
    schemas,
    limits,
    flows,
    tracking,
    items,
    gates,
    breakers,
    recovery,
    analytics,
    reviews,
    detection,
    shipping,
    pauses,
    monitoring,
    exports,
    slos,
    usage,
    alerts,
    customers,
    keys,
    health,
)


def _fastpath(keyring: KeyCache, client: Client) -> WorkerFastPath:
    """Build the fast path: heartbeats and other worker calls commit in separate groups."""
    return WorkerFastPath(
        keyring, GroupCommit(client.work.execute_batch), GroupCommit(client.work.execute_batch)
    )


ROUTES: Final = Routes(
    declared=tuple(module.routes for module in _MODULES),
    plain=(*health.plain_routes, *incoming.plain_routes),
    fastpath=_fastpath,
    pages=build_site,
)
