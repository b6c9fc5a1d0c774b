"""Implement the commands' use cases through the API, with the generated client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.backends.paging import read_pages
from penstock.cli.backends.protocol import Shape, Wanted
from penstock.core.errors import Conflict, PenstockError
from penstock.core.fields import check_customer
from penstock.core.ids import new_correlation_id
from penstock.remote import Api
from penstock.remote.problems import error_from_code

if TYPE_CHECKING:
    from penstock.cli.backends.protocol_bus import BusCases
    from penstock.cli.backends.protocol_dead_letters import DeadLetterUseCases

BULK = 10_000


class ApiBackend:
    """Backend of the commands that works through the API."""

    def __init__(self, api: Api) -> None:
        # Typed as Any: commands read the typed responses of the client as plain JSON objects.
        self._api: Any = api
        self._transport = api.transport
        self.where = api.transport.url
        self._whole = api

    @property
    def dead_letters(self) -> DeadLetterUseCases:
        """Use cases for dead letters."""
        # Imported here so that commands that do not need it start faster.
        from penstock.cli.backends.http_dead_letters import HttpDeadLetters

        return HttpDeadLetters(self._whole)

    @property
    def bus(self) -> BusCases:
        """Use cases for topics and subscriptions."""
        # Imported here so that commands that do not need it start faster.
        from penstock.cli.backends.http_bus import HttpBus

        return HttpBus(self._whole)

    def now(self) -> int:
        """Return the server's current time in micros, accurate to a second."""
        if self._transport.server_now is None:
            self._api.health.healthz()
        now = self._transport.server_now
        assert now is not None, "every response has a Date header"
        return now

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
        query = {"pipeline_template": pipeline, "is_active": is_active, "after": after}
        if customer is None:
            return read_pages(self._api.configs.list_configs, limit, query)
        ask, owner = self._api.configs.list_customer_configs, check_customer(customer)
        return read_pages(lambda **q: ask(owner, **q), limit, query)

    def config(self, config_id: str) -> Shape:
        """Return one config."""
        found: Shape = self._api.configs.get_config(config_id)
        return found

    def check(self, wanted: Wanted) -> tuple[int, PenstockError] | None:
        """Return the index and error of the first invalid config."""
        for start in range(0, len(wanted), BULK):
            items = [_item(one, "") for one in wanted[start : start + BULK]]
            for outcome in self._api.configs.create_configs_bulk(items, dry_run=True):
                if outcome["status"] == "refused":
                    return start + outcome["index"], _refusal(outcome)
        return None

    def create(self, wanted: Wanted, reason: str) -> list[Shape]:
        """Create configs; several go through the bulk route, 10,000 per request."""
        if len(wanted) == 1:
            customer, fields = wanted[0]
            body = {**fields, "reason": reason}
            return [self._api.configs.create_config(check_customer(customer), body)]
        made: list[Shape] = []
        for start in range(0, len(wanted), BULK):
            items = [_item(one, reason) for one in wanted[start : start + BULK]]
            for outcome in self._api.configs.create_configs_bulk(
                items, with_configs=True, idempotency_key=new_correlation_id()
            ):
                if outcome["status"] != "created":
                    place = start + outcome["index"] + 1
                    why = outcome.get("detail")
                    raise Conflict(
                        f"{len(made)} configs were created; item {place} was refused: {why}"
                    )
                made.append(outcome["config"])
        return made

    def update(self, config_id: str, fields: Shape, *, version: int | None, reason: str) -> Shape:
        """Change fields of a config and return it."""
        body = _given({**fields, "version": version, "reason": reason})
        changed: Shape = self._api.configs.update_config(config_id, body)
        return changed

    def delete(self, config_id: str, reason: str) -> None:
        """Delete a config."""
        self._api.configs.delete_config(config_id, reason=reason)

    def start(self, config_id: str) -> list[str]:
        """Start a config now and return the ids of its runs."""
        return list(self._api.configs.start_config(config_id)["run_ids"])

    def preview(self, config_id: str, n: int) -> list[Shape]:
        """Return the next `n` occurrences of a config."""
        return list(self._api.configs.preview_config(config_id, n=n)["fires"])

    def audit(self, customer: str, *, config_id: str | None, limit: int) -> list[Shape]:
        """Return a customer's audit trail, oldest first."""
        ask, owner = self._api.configs.audit_customer, check_customer(customer)
        return read_pages(lambda **q: ask(owner, **q), limit, {"config_id": config_id})

    def ledger(self, config_id: str, limit: int) -> list[Shape]:
        """Return occurrences that did not start, newest first."""
        ask = self._api.configs.list_occurrences
        return read_pages(lambda **q: ask(config_id, **q), limit, {})

    # -- the rest ------------------------------------------------------------------------------

    def pauses(self) -> list[Shape]:
        """Return the pauses in force."""
        return list(self._api.views.list_pauses())

    def pause(self, scope: str, subject: str | None, reason: str) -> bool:
        """Pause a scope; return False if it was already paused."""
        body = {"scope": scope, "subject": subject, "reason": reason}
        return bool(self._api.views.pause(body)["changed"])

    def resume(self, scope: str, subject: str | None, reason: str) -> bool:
        """End a pause; return False if there was none."""
        body = {"scope": scope, "subject": subject, "reason": reason}
        return bool(self._api.views.resume(body)["changed"])


def _given(fields: Mapping[str, Any]) -> Shape:
    return {name: value for name, value in fields.items() if value is not None}


def _item(one: tuple[str, Mapping[str, Any]], reason: str) -> Shape:
    customer, fields = one
    return {**fields, "customer_id": customer, "reason": reason}


def _refusal(outcome: Mapping[str, Any]) -> PenstockError:
    names = ("field", "expected", "got", "fix")
    detail = {name: outcome[name] for name in names if outcome.get(name) is not None}
    return error_from_code(str(outcome["code"]), str(outcome["detail"]), detail)
