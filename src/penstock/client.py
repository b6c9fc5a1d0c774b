"""The client: every use case of the product, for Python programs, the CLI, the API and the UI.

A `Client` depends on a store and nothing else. Each call runs one transaction (or one read) and
returns plain records; invalid input raises an error that names the field. Every change records the
`actor` that made it.

    client = Client(store)
    client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    client.configs.create("acme", {"pipeline_template": "nightly", "schedule_cron": "0 2 * * *"})
    client.scoped("acme").runs.page(RunFilter())  # reads and changes only acme's data
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.access.client import Keys
from penstock.access.store.names import NameResolver
from penstock.bus.client.subscriptions import Subscriptions, WaitingSubscriptions
from penstock.bus.client.topics import Topics
from penstock.db.store import StoreView, Transactions
from penstock.dead_letters.client.dead_letters import DeadLetters
from penstock.flows.client.flows import Flows
from penstock.flows.client.trigger_preview import Previews
from penstock.flows.explain.client import Diagnostics
from penstock.flows.gates.client.gates import Gates
from penstock.flows.gates.client.overrides import Interventions, Overrides
from penstock.flows.gates.probe_request import Prober, no_probes
from penstock.limits.client import Limits
from penstock.monitoring.client import Views
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.store import pipeline_register
from penstock.runs.client.runs import Runs
from penstock.runs.external.client.work import ExternalWork
from penstock.schedules.client.configs import Configs
from penstock.schedules.client.pauses import Pauses
from penstock.wiring import connect_hooks

__all__ = ["Client", "UseCaseGroups"]

connect_hooks()


class UseCaseGroups:
    """The use cases of Penstock, grouped by subject."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str, probe: Prober) -> None:
        self.actor = actor
        self.runs = Runs(store, names, actor)
        self.dead_letters = DeadLetters(store, names, actor)
        self.configs = Configs(store, names, actor)
        self.topics = Topics(store, names, actor)
        self.subscriptions = Subscriptions(store, names, actor)
        self.limits = Limits(store, names, actor)
        self.pauses = Pauses(store, names, actor)
        self.views = Views(store, names)
        self.work = ExternalWork(store, names)
        self.keys = Keys(store, names, actor)
        self.flows = Flows(store, names, actor)
        self.gates = Gates(store, names, probe)
        self.overrides = Overrides(store, names, actor)
        self.interventions = Interventions(store, names, actor)
        self.diagnostics = Diagnostics(store, names)
        self.previews = Previews(store, names)


class Client(UseCaseGroups):
    """The use cases of Penstock over a store, for all customers or scoped to one."""

    subscriptions: WaitingSubscriptions

    def __init__(
        self,
        store: StoreView,
        *,
        actor: str = "python",
        names: NameResolver | None = None,
        probe: Prober = no_probes,
    ) -> None:
        """Create a client over `store`; changes are recorded under `actor` unless a call names one.

        Pass another client's `names` to share its cache and its customer scope. `probe` probes the
        data when a gate is checked; by default no probes run.
        """
        names = names or NameResolver(store)
        super().__init__(store, names, actor, probe)
        self.subscriptions = WaitingSubscriptions(store, names, actor)
        self.store = store
        self._names = names
        self._probe = probe

    @property
    def customer_id(self) -> str | None:
        """Customer this client is scoped to; None if it sees all customers."""
        return self._names.customer_id

    def scoped(self, customer_id: str, *, actor: str | None = None) -> Client:
        """Return a client scoped to one customer; raise NotFound if the customer does not exist.

        All its use cases are limited to that customer. Resources of other customers raise NotFound,
        as if they did not exist.
        """
        number = self._names.lookup_customer_key(customer_id)
        names = self._names.scoped(customer_id, number)
        return Client(
            self.store.scoped(number), actor=actor or self.actor, names=names, probe=self._probe
        )

    def with_store(self, store: Transactions, *, actor: str | None = None) -> UseCaseGroups:
        """Return the use cases over other transactions, e.g. those of one request."""
        return UseCaseGroups(store, self._names, actor or self.actor, self._probe)

    def as_actor(self, actor: str) -> Client:
        """Return the same client with another default actor."""
        return Client(self.store, actor=actor, names=self._names, probe=self._probe)

    def request_scope(self, text: str) -> str:
        """Return the scope under which a caller's idempotency keys are stored."""
        return self._names.request_scope(text)

    def register(self, pipelines: Sequence[Pipeline]) -> None:
        """Register pipeline declarations, so that configs and runs can refer to them."""
        self._names.require_unscoped("registering pipelines")
        for pipeline in pipelines:
            pipeline.check()

        for pipeline in pipelines:
            self.store.write(lambda tx, p=pipeline: pipeline_register(tx, p))  # type: ignore[misc]
        self._names.invalidate()
