"""The client: every use case of the product, for Python programs, the CLI, the API and the UI.

A `Client` stands on a store and nothing else. Each call is one transaction (or one read) and
answers with plain records; bad input raises an error that names the field. Who does something is
always said (`actor`), because it is written down.

    client = Client(store)
    client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    client.configs.create("acme", {"pipeline_template": "nightly", "schedule_cron": "0 2 * * *"})
    client.scoped("acme").runs.page(RunFilter())  # can see and touch acme's alone
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.access.client import Keys
from penstock.access.store.names import Names
from penstock.bus.client.subscriptions import Subscriptions
from penstock.bus.client.topics import Topics
from penstock.db.store import Store
from penstock.dead_letters.client.dead_letters import DeadLetters
from penstock.flows.client.flows import Flows
from penstock.flows.client.trigger_preview import Previews
from penstock.flows.explain.client import Explaining
from penstock.flows.gates.client.gates import Gates
from penstock.flows.gates.client.people import Interventions, Overrides
from penstock.flows.gates.probe_request import Looker, unseeing
from penstock.limits.client import Limits
from penstock.monitoring.client import Views
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.store import pipeline_register
from penstock.runs.client.runs import Runs
from penstock.runs.external.client.work import Work
from penstock.schedules.client.configs import Configs
from penstock.schedules.client.pauses import Pauses
from penstock.wiring import connect_hooks

__all__ = ["Client"]

connect_hooks()


class Client:
    """The use cases, by subject."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str = "python",
        names: Names | None = None,
        look: Looker = unseeing,
    ) -> None:
        """A client over `store`; `actor` is who is written down unless a call says otherwise.

        `names` are another client's, so that both know the same and are confined alike; `look` is
        how it looks at data when a gate is to be checked now.
        """
        self.store = store
        self.actor = actor
        names = names or Names(store)
        self.runs = Runs(store, names, actor)
        self.dead_letters = DeadLetters(store, names, actor)
        self.configs = Configs(store, names, actor)
        self.topics = Topics(store, names, actor)
        self.subscriptions = Subscriptions(store, names, actor)
        self.limits = Limits(store, names, actor)
        self.pauses = Pauses(store, names, actor)
        self.views = Views(store, names)
        self.work = Work(store, names)
        self.keys = Keys(store, names, actor)
        self.flows = Flows(store, names, actor)
        self.gates = Gates(store, names, look)
        self.overrides = Overrides(store, names, actor)
        self.interventions = Interventions(store, names, actor)
        self.explaining = Explaining(store, names)
        self.previews = Previews(store, names)
        self._names = names
        self._look = look

    @property
    def customer_id(self) -> str | None:
        """The one customer this client is confined to, if any."""
        return self._names.customer_id

    def scoped(self, customer_id: str, *, actor: str | None = None) -> Client:
        """A client that knows one customer only; NotFound when there is none of that name.

        Whatever its use cases are asked, they are about that customer; somebody else's things are
        answered like things that do not exist.
        """
        number = self._names.known(customer_id)
        names = self._names.bound(customer_id, number)
        return Client(
            self.store.scoped(number), actor=actor or self.actor, names=names, look=self._look
        )

    def over(self, store: Store, *, actor: str | None = None) -> Client:
        """The same client over another view of its store (one that marks a request, say)."""
        return Client(store, actor=actor or self.actor, names=self._names, look=self._look)

    def acting(self, actor: str) -> Client:
        """The same client, for somebody else."""
        return Client(self.store, actor=actor, names=self._names, look=self._look)

    def request_scope(self, text: str) -> str:
        """Under what a caller's request keys are remembered, apart from everybody else's."""
        return self._names.request_scope(text)

    def register(self, pipelines: Sequence[Pipeline]) -> None:
        """Make declarations known, so that configs and runs may refer to them."""
        self._names.refuse_bound("registering pipelines")
        for pipeline in pipelines:
            pipeline.check()

        for pipeline in pipelines:
            self.store.write(lambda tx, p=pipeline: pipeline_register(tx, p))  # type: ignore[misc]
        self._names.forget()
