"""The client: every use case of the product, for Python programs, the CLI, the API and the UI.

A `Client` depends on a store and nothing else. Each call runs one transaction (or one read) and
returns plain records; invalid input raises an error that names the field. Every change records the
`actor` that made it.

    client = Client(store)
    client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    client.configs.create("acme", Config(pipeline="nightly", cron="0 2 * * *"))
    client.scoped("acme").runs.list()  # reads and changes only acme's data
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from penstock.access.store.names import NameResolver
from penstock.db.dry_run import DryRunStore
from penstock.db.hooks import connect_on_first_use
from penstock.db.replica.reads import lagging_reads
from penstock.db.store import StoreView, Transactions
from penstock.flows.gates.probe_request import Prober, no_probes

if TYPE_CHECKING:
    from penstock.access.client.customers import Customers
    from penstock.access.client.keys import Keys
    from penstock.access.client.logins import Logins
    from penstock.alerts.client.alerts import Alerts
    from penstock.analytics.client import Analytics
    from penstock.analytics.review.client import Reviews
    from penstock.bus.client.schemas import Schemas
    from penstock.bus.client.snapshots import Snapshots
    from penstock.bus.client.subscriptions import Subscriptions, WaitingSubscriptions
    from penstock.bus.client.topics import Topics
    from penstock.core.naming import CustomerKey
    from penstock.dead_letters.client.dead_letters import DeadLetters
    from penstock.detection.client import Detections
    from penstock.flows.breakers.client import Breakers
    from penstock.flows.client.flows import Flows
    from penstock.flows.client.trigger_preview import Previews
    from penstock.flows.explain.client import Diagnostics
    from penstock.flows.gates.client.gates import Gates
    from penstock.flows.gates.client.overrides import Interventions, Overrides
    from penstock.flows.items.client import Items
    from penstock.limits.client import Limits
    from penstock.monitoring.client.views import Views
    from penstock.monitoring.exports.client import Exports
    from penstock.pipelines.declare.pipeline import Pipeline
    from penstock.recovery.client.backfills import Backfills
    from penstock.recovery.client.recovery import Recovery
    from penstock.runs.client.runs import Runs
    from penstock.runs.external.client.work import ExternalWork
    from penstock.runs.external.client.workers import Workers
    from penstock.schedules.client.configs import Configs
    from penstock.schedules.client.pauses import Pauses
    from penstock.schedules.load_map.client import Schedules
    from penstock.shipping.client import AuditSinks
    from penstock.slos.client import Slos
    from penstock.tracking.client import Tracking
    from penstock.usage.client.anomalies import Anomalies
    from penstock.usage.client.budgets import Budgets
    from penstock.usage.client.pools import Pools

__all__ = ["Client", "UseCaseGroups"]

P = ParamSpec("P")
G = TypeVar("G")


def _connect_hooks() -> None:
    from penstock.wiring import connect_hooks  # it loads every subject

    connect_hooks()


connect_on_first_use(_connect_hooks)


class MeasuredGroups:
    """The use cases of measurements: service levels, usage."""

    _store: Transactions
    _names: NameResolver
    _probe: Prober
    _key: str
    """Id of the API key that the client acts for; external workers hold runs under it."""
    actor: str

    def __init__(
        self, store: Transactions, names: NameResolver, actor: str, probe: Prober, key: str = ""
    ) -> None:
        self._store = store
        self._names = names
        self._probe = probe
        self._key = key
        self.actor = actor

    def _group(self, kind: Callable[P, G], *args: P.args, **kwargs: P.kwargs) -> G:
        """Return the use cases of one subject; a remote client returns those over HTTP."""
        return kind(*args, **kwargs)

    @property
    def _lagging(self) -> Transactions:
        """Transactions for use cases that only read and tolerate lag; they may use a replica."""
        return lagging_reads(self._store)

    @cached_property
    def slos(self) -> Slos:
        """Service levels: targets, error budgets, breaches."""
        from penstock.slos.client import Slos  # loaded on first use

        return self._group(Slos, self._lagging, self._names)

    @cached_property
    def budgets(self) -> Budgets:
        """Budgets of pipelines and customers: set, list, lift, remove."""
        from penstock.usage.client.budgets import Budgets  # loaded on first use

        return self._group(Budgets, self._store, self._names, self.actor)

    @cached_property
    def anomalies(self) -> Anomalies:
        """Executions outside the range of earlier ones."""
        from penstock.usage.client.anomalies import Anomalies  # loaded on first use

        return self._group(Anomalies, self._lagging, self._names)

    @cached_property
    def pools(self) -> Pools:
        """The load of pools, and the number of workers they need."""
        from penstock.usage.client.pools import Pools  # loaded on first use

        return self._group(Pools, self._store, self._names)


class _BusGroups(MeasuredGroups):
    """The use cases of snapshots and schemas."""

    @cached_property
    def snapshots(self) -> Snapshots:
        """Snapshots of subscriptions: take, list, seek."""
        from penstock.bus.client.snapshots import Snapshots  # loaded on first use

        return self._group(Snapshots, self._store, self._names, self.actor)

    @cached_property
    def schemas(self) -> Schemas:
        """Schemas of messages and their revisions."""
        from penstock.bus.client.schemas import Schemas  # loaded on first use

        return self._group(Schemas, self._store, self._names, self.actor)


class UseCaseGroups(_BusGroups):
    """The use cases of Penstock, grouped by subject; a group is loaded when it is first used."""

    def dry_run(self) -> UseCaseGroups:
        """Return the same use cases for a dry run: every change is made and rolled back.

        Results and errors are the same as for the change itself. Ids in a result do not exist
        afterwards.
        """
        store = DryRunStore(self._store)
        return UseCaseGroups(store, self._names.apart(), self.actor, self._probe, self._key)

    def now(self) -> int:
        """Return the time of the database in microseconds."""
        return self._store.read(lambda tx: tx.now())

    @cached_property
    def runs(self) -> Runs:
        """Submit, list, cancel and retry runs."""
        from penstock.runs.client.runs import Runs  # loaded on first use

        return self._group(Runs, self._store, self._names, self.actor)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Dead letters of runs and deliveries: list, replay, discard."""
        from penstock.dead_letters.client.dead_letters import DeadLetters  # loaded on first use

        return self._group(DeadLetters, self._store, self._names, self.actor)

    @cached_property
    def configs(self) -> Configs:
        """Schedules of customers: create, change, preview, audit."""
        from penstock.schedules.client.configs import Configs  # loaded on first use

        return self._group(Configs, self._store, self._names, self.actor)

    @cached_property
    def schedules(self) -> Schedules:
        """Scheduled starts of all configs: the load map, and jitter that spreads them."""
        from penstock.schedules.load_map.client import Schedules  # loaded on first use

        return self._group(Schedules, self._store, self._names, self.actor)

    @cached_property
    def topics(self) -> Topics:
        """Topics and messages: create, publish, find a message."""
        from penstock.bus.client.topics import Topics  # loaded on first use

        return self._group(Topics, self._store, self._names, self.actor)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        """Subscriptions: create, change, pull, ack, pause, seek, purge."""
        from penstock.bus.client.subscriptions import Subscriptions  # loaded on first use

        return self._group(Subscriptions, self._store, self._names, self.actor)

    @cached_property
    def limits(self) -> Limits:
        """Shared capacity and rates: holders, queues, learned capacity."""
        from penstock.limits.client import Limits  # loaded on first use

        return self._group(Limits, self._store, self._names, self.actor)

    @cached_property
    def pauses(self) -> Pauses:
        """Pauses of customers, pipelines and configs."""
        from penstock.schedules.client.pauses import Pauses  # loaded on first use

        return self._group(Pauses, self._store, self._names, self.actor)

    @cached_property
    def exports(self) -> Exports:
        """History as plain rows: ended runs, flows, journal, executions."""
        from penstock.monitoring.exports.client import Exports  # loaded on first use

        return self._group(Exports, self._lagging, self._names)

    @cached_property
    def views(self) -> Views:
        """Overview, metrics, pipelines, sessions."""
        from penstock.monitoring.client.views import Views  # loaded on first use

        return self._group(Views, self._store, self._names)

    @cached_property
    def alerts(self) -> Alerts:
        """Alerts: list, acknowledge, silence, resolve; rules and channels."""
        from penstock.alerts.client.alerts import Alerts  # loaded on first use

        return self._group(Alerts, self._store, self._names, self.actor)

    @cached_property
    def work(self) -> ExternalWork:
        """Runs of external workers: claim, start, heartbeat, complete, fail."""
        from penstock.runs.external.client.work import ExternalWork  # loaded on first use

        return self._group(ExternalWork, self._store, self._names)

    @cached_property
    def workers(self) -> Workers:
        """Runs of external workers, as in the API: claim, start, heartbeat, complete."""
        from penstock.runs.external.client.workers import Workers  # loaded on first use

        return self._group(Workers, self._store, self._names, self._key)

    @cached_property
    def customers(self) -> Customers:
        """Customers: their weight and their maximum number of runs."""
        from penstock.access.client.customers import Customers  # loaded on first use

        return self._group(Customers, self._store, self._names, self.actor)

    @cached_property
    def keys(self) -> Keys:
        """API keys: create, rotate, revoke."""
        from penstock.access.client.keys import Keys  # loaded on first use

        return self._group(Keys, self._store, self._names, self.actor)

    @cached_property
    def logins(self) -> Logins:
        """Sessions of the dashboard: open, find, close."""
        from penstock.access.client.logins import Logins  # loaded on first use

        return self._group(Logins, self._store, self._names)

    @cached_property
    def items(self) -> Items:
        """Items of processors that fan out: counts, lists, retries."""
        from penstock.flows.items.client import Items  # loaded on first use

        return self._group(Items, self._store, self._names, self.actor)

    @cached_property
    def flows(self) -> Flows:
        """Flows: trigger, report, cancel."""
        from penstock.flows.client.flows import Flows  # loaded on first use

        return self._group(Flows, self._store, self._names, self.actor)

    @cached_property
    def gates(self) -> Gates:
        """Gates: check, history, what-if."""
        from penstock.flows.gates.client.gates import Gates  # loaded on first use

        return self._group(Gates, self._store, self._names, self._probe)

    @cached_property
    def overrides(self) -> Overrides:
        """Overrides of gates."""
        from penstock.flows.gates.client.overrides import Overrides  # loaded on first use

        return self._group(Overrides, self._store, self._names, self.actor)

    @cached_property
    def interventions(self) -> Interventions:
        """Interventions: items that need a human decision."""
        from penstock.flows.gates.client.overrides import Interventions  # loaded on first use

        return self._group(Interventions, self._store, self._names, self.actor)

    @cached_property
    def analytics(self) -> Analytics:
        """Statistics on ended work: dependencies, trends, series, acknowledgments."""
        from penstock.analytics.client import Analytics  # loaded on first use

        return self._group(Analytics, self._lagging, self._names)

    @cached_property
    def audit_sinks(self) -> AuditSinks:
        """Audit sinks: progress of shipping the journal and the logs."""
        from penstock.shipping.client import AuditSinks  # loaded on first use

        return self._group(AuditSinks, self._store, self._names)

    @cached_property
    def reviews(self) -> Reviews:
        """Reviews: the daily checks and the weekly report."""
        from penstock.analytics.review.client import Reviews  # loaded on first use

        return self._group(Reviews, self._lagging, self._names)

    @cached_property
    def detections(self) -> Detections:
        """Late, stuck, missing and at-risk work; forecasts of flows; freshness of tables."""
        from penstock.detection.client import Detections  # loaded on first use

        return self._group(Detections, self._store, self._names)

    @cached_property
    def breakers(self) -> Breakers:
        """Breakers of phases: list, explain, reset."""
        from penstock.flows.breakers.client import Breakers  # loaded on first use

        return self._group(Breakers, self._store, self._names, self.actor)

    @cached_property
    def backfills(self) -> Backfills:
        """Backfills: start, read, pause, resume, cancel."""
        from penstock.recovery.client.backfills import Backfills  # loaded on first use

        return self._group(Backfills, self._store, self._names, self.actor)

    @cached_property
    def recovery(self) -> Recovery:
        """Replay a part of a flow, cancel by filter, find slow processors."""
        from penstock.recovery.client.recovery import Recovery  # loaded on first use

        return self._group(Recovery, self._store, self._names, self.actor)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Explanations of flows and runs, and traces."""
        from penstock.flows.explain.client import Diagnostics  # loaded on first use

        return self._group(Diagnostics, self._store, self._names)

    @cached_property
    def tracking(self) -> Tracking:
        """The execution log, and search for any object."""
        from penstock.tracking.client import Tracking  # loaded on first use

        return self._group(Tracking, self._lagging, self._names)

    @cached_property
    def previews(self) -> Previews:
        """Previews of triggers."""
        from penstock.flows.client.trigger_preview import Previews  # loaded on first use

        return self._group(Previews, self._store, self._names)


class Client(UseCaseGroups):
    """The use cases of Penstock over a store, for all customers or scoped to one."""

    def __init__(
        self,
        store: StoreView,
        *,
        actor: str = "python",
        names: NameResolver | None = None,
        probe: Prober = no_probes,
        key: str = "",
    ) -> None:
        """Create a client over `store`; changes are recorded under `actor` unless a call names one.

        Pass another client's `names` to share its cache and its customer scope. `probe` probes the
        data when a gate is checked; by default no probes run. `key` is the id of the API key that
        the client acts for.
        """
        names = names or NameResolver(store)
        super().__init__(store, names, actor, probe, key)
        self.store = store

    @cached_property
    def subscriptions(self) -> WaitingSubscriptions:
        """Subscriptions: create, change, pull, ack, pause, seek, purge; a pull can wait."""
        from penstock.bus.client.subscriptions import WaitingSubscriptions  # loaded on first use

        return self._group(WaitingSubscriptions, self.store, self._names, self.actor)

    @property
    def probe(self) -> Prober:
        """The function that probes data for gates."""
        return self._probe

    @property
    def customer_id(self) -> str | None:
        """Customer this client is scoped to; None if it sees all customers."""
        return self._names.customer_id

    def find_customer_key(self) -> CustomerKey | None:
        """Return the key of the customer this client is scoped to; None if it sees all."""
        name = self._names.customer_id
        return None if name is None else self._names.lookup_customer_key(name)

    def customer_key_of(self, customer_id: str) -> CustomerKey:
        """Return the key of a customer; raise NotFound if the customer does not exist."""
        return self._names.lookup_customer_key(customer_id)

    def scoped(
        self, customer_id: str, *, actor: str | None = None, key: str | None = None
    ) -> Client:
        """Return a client scoped to one customer; raise NotFound if the customer does not exist.

        All its use cases are limited to that customer. Resources of other customers raise NotFound,
        as if they did not exist.
        """
        number = self._names.lookup_customer_key(customer_id)
        names = self._names.scoped(customer_id, number)
        return Client(
            self.store.scoped(number),
            actor=actor or self.actor,
            names=names,
            probe=self._probe,
            key=self._key if key is None else key,
        )

    def with_store(self, store: Transactions, *, actor: str | None = None) -> UseCaseGroups:
        """Return the use cases over other transactions, e.g. those of one request."""
        return UseCaseGroups(store, self._names, actor or self.actor, self._probe, self._key)

    def as_actor(self, actor: str, *, key: str | None = None) -> Client:
        """Return the same client with another default actor, and for another API key."""
        key = self._key if key is None else key
        return Client(self.store, actor=actor, names=self._names, probe=self._probe, key=key)

    def request_scope(self, text: str) -> str:
        """Return the scope under which a caller's idempotency keys are stored."""
        return self._names.request_scope(text)

    def register(self, pipelines: Sequence[Pipeline]) -> None:
        """Register pipeline declarations, so that configs and runs can refer to them."""
        from penstock.pipelines.store import pipeline_register  # loaded on first use

        self._names.require_unscoped("registering pipelines")
        for pipeline in pipelines:
            pipeline.check()

        for pipeline in pipelines:
            self.store.write(lambda tx, p=pipeline: pipeline_register(tx, p))  # type: ignore[misc]
        self._names.invalidate()
