"""The client: every use case of the product, for Python programs, the CLI, the API and the UI.

A `Client` stands on a store and nothing else. Each call is one transaction (or one read) and
answers with plain records; bad input raises an error that names the field. Who does something is
always said (`actor`), because it is written down.

    client = Client(store)
    client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    client.configs.create("acme", {"pipeline_template": "nightly", "schedule_cron": "0 2 * * *"})
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.configs import Configs
from penstock.client.names import Names
from penstock.client.pauses import Pauses
from penstock.client.runs import Runs
from penstock.client.views import Views
from penstock.core.pipeline import Pipeline
from penstock.store.api import Store
from penstock.store.declare import pipeline_register

__all__ = ["Client"]


class Client:
    """The use cases, by subject."""

    def __init__(self, store: Store, *, actor: str = "python") -> None:
        """A client over `store`; `actor` is who is written down unless a call says otherwise."""
        self.store = store
        names = Names(store)
        self.runs = Runs(store, names, actor)
        self.configs = Configs(store, names, actor)
        self.pauses = Pauses(store, names, actor)
        self.views = Views(store, names)
        self._names = names

    def register(self, pipelines: Sequence[Pipeline]) -> None:
        """Make declarations known, so that configs and runs may refer to them."""
        for pipeline in pipelines:
            pipeline.check()

        for pipeline in pipelines:
            self.store.write(lambda tx, p=pipeline: pipeline_register(tx, p))  # type: ignore[misc]
        self._names.forget()
