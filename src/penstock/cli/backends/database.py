"""Implement the commands' use cases on the database, with results in the API's JSON shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.assembly.database import describe_database
from penstock.cli.backends.protocol import Shape, Wanted, rename_field
from penstock.client import Client
from penstock.core.errors import PenstockError
from penstock.core.fields import check_customer
from penstock.core.ids import decode, encode
from penstock.schedules.shapes import (
    audit_shape,
    config_shape,
    ledger_shape,
    occurrence_shape,
    pause_shape,
)

if TYPE_CHECKING:
    from penstock.cli.backends.protocol_bus import BusCases
    from penstock.cli.backends.protocol_dead_letters import DeadLetterUseCases

SUBJECTS = ("customer_id", "cfg_id", "pipeline")


class DatabaseBackend:
    """Backend of the commands that works on the database through the client."""

    def __init__(self, client: Client, database_url: str) -> None:
        self._client = client
        self.where = describe_database(database_url)

    @property
    def dead_letters(self) -> DeadLetterUseCases:
        """Use cases for dead letters."""
        # Imported here so that commands that do not need it start faster.
        from penstock.cli.backends.database_dead_letters import DatabaseDeadLetters

        return DatabaseDeadLetters(self._client)

    @property
    def bus(self) -> BusCases:
        """Use cases for topics and subscriptions."""
        # Imported here so that commands that do not need it start faster.
        from penstock.cli.backends.database_bus import DatabaseBus

        return DatabaseBus(self._client)

    def now(self) -> int:
        """Return the database's current time, in micros."""
        return self._client.views.now()

    # -- configs -------------------------------------------------------------------------------

    def configs(
        self,
        *,
        customer: str | None,
        pipeline: str | None,
        is_active: bool | None,
        after: str | None,
        limit: int,
    ) -> list[Shape]:
        """Return configs, oldest first."""
        found = self._client.configs.page(
            customer=customer,
            pipeline=pipeline,
            is_active=is_active,
            after=0 if after is None else decode("cfg", after),
            limit=limit,
        )
        return [config_shape(config) for config in found]

    def config(self, config_id: str) -> Shape:
        """Return one config."""
        return config_shape(self._client.configs.get(decode("cfg", config_id)))

    def check(self, wanted: Wanted) -> tuple[int, PenstockError] | None:
        """Return the index and error of the first invalid config."""
        for index, (customer, fields) in enumerate(wanted):
            try:
                self._client.configs.check(fields)
                check_customer(customer)
            except PenstockError as error:
                return index, error
        return None

    def create(self, wanted: Wanted, reason: str) -> list[Shape]:
        """Create configs in one transaction and return them."""
        made = self._client.configs.create_many(wanted, reason=reason)
        return [config_shape(config) for config in made]

    def update(self, config_id: str, fields: Shape, *, version: int | None, reason: str) -> Shape:
        """Change fields of a config and return it."""
        changed = self._client.configs.update(
            decode("cfg", config_id), fields, version=version, reason=reason
        )
        return config_shape(changed)

    def delete(self, config_id: str, reason: str) -> None:
        """Delete a config."""
        self._client.configs.delete(decode("cfg", config_id), reason=reason)

    def start(self, config_id: str) -> list[str]:
        """Start a config now and return the ids of its runs."""
        return [encode("run", n) for n in self._client.configs.start(decode("cfg", config_id))]

    def preview(self, config_id: str, n: int) -> list[Shape]:
        """Return the next `n` occurrences of a config."""
        fires = self._client.configs.preview(decode("cfg", config_id), n)
        return [occurrence_shape(fire) for fire in fires]

    def audit(self, customer: str, *, config_id: str | None, limit: int) -> list[Shape]:
        """Return a customer's audit trail, oldest first."""
        number = None if config_id is None else decode("cfg", config_id)
        rows = self._client.configs.audit(customer, config_id=number, limit=limit)
        return [audit_shape(row) for row in rows]

    def ledger(self, config_id: str, limit: int) -> list[Shape]:
        """Return occurrences that did not start, newest first."""
        rows = self._client.configs.ledger(decode("cfg", config_id), limit)
        return [ledger_shape(row) for row in rows]

    # -- the rest ------------------------------------------------------------------------------

    def pauses(self) -> list[Shape]:
        """Return the pauses in force."""
        return [pause_shape(pause) for pause in self._client.pauses.in_force()]

    def pause(self, scope: str, subject: str | None, reason: str) -> bool:
        """Pause a scope; return False if it was already paused."""
        with rename_field("subject", SUBJECTS):
            return self._client.pauses.pause(scope, subject, reason=reason)

    def resume(self, scope: str, subject: str | None, reason: str) -> bool:
        """End a pause; return False if there was none."""
        with rename_field("subject", SUBJECTS):
            return self._client.pauses.resume(scope, subject, reason=reason)
