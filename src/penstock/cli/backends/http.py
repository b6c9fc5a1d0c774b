"""Implement the commands' use cases through the API, with the generated client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.backends.paging import read_pages
from penstock.cli.backends.protocol import RunQuery, Shape, rename_field
from penstock.core.clock import iso
from penstock.core.errors import Conflict, Forbidden
from penstock.core.fields import check_customer
from penstock.remote import Api

if TYPE_CHECKING:
    from penstock.cli.backends.protocol_bus import BusCases
    from penstock.cli.backends.protocol_dead_letters import DeadLetterUseCases
    from penstock.cli.backends.protocol_flows import FlowCases


class ApiBackend:
    """Backend of the commands that works through the API."""

    def __init__(self, api: Api) -> None:
        # Typed as Any: commands read the typed responses of the client as plain JSON objects.
        self._api: Any = api
        self._transport = api.transport
        self.where = api.transport.url
        self._whole = api

    @property
    def flows(self) -> FlowCases:
        """Use cases for flows and gates."""
        # Imported here so that commands that do not need it start faster.
        from penstock.cli.backends.http_flows import HttpFlows

        return HttpFlows(self._whole)

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

    # -- runs ----------------------------------------------------------------------------------

    def runs(self, asked: RunQuery) -> list[Shape]:
        """Return runs: unfinished ones first, then newest first."""
        query = {
            "state": asked.state,
            "start_date": None if asked.since is None else iso(asked.since),
            "end_date": None if asked.until is None else iso(asked.until),
            "pipeline_template": asked.pipeline,
            "before": asked.before,
        }
        if asked.customer is None:
            try:
                return read_pages(self._api.runs.list_runs, asked.limit, query)
            except Forbidden as error:
                raise Forbidden(f"{error.message} Add --customer ID.") from None
        ask, customer = self._api.runs.list_customer_runs, check_customer(asked.customer)
        return read_pages(lambda **q: ask(customer, **q), asked.limit, query)

    def run(self, run_id: str) -> Shape:
        """Return a run with its attempts, journal and progress."""
        found: Shape = self._api.runs.get_run(run_id)
        return found

    def submit(self, customer: str, wanted: Shape, key: str | None) -> Shape:
        """Create a run and return it."""
        body = _given(wanted)
        with (
            rename_field("priority", ["execution_priority"]),
            rename_field("at", ["scheduled_time"]),
        ):
            made = self._api.runs.submit_run(check_customer(customer), body, idempotency_key=key)
        run: Shape = self._api.runs.get_run(made["run_id"])["run"]
        return run

    def cancel(self, run_id: str, reason: str) -> str:
        """Cancel a run and return the outcome."""
        return str(self._api.runs.cancel_run(run_id, {"reason": reason})["outcome"])

    def retry(self, run_id: str) -> str:
        """Run a finished run again and return the new run's id."""
        return str(self._api.runs.retry_run(run_id)["run_id"])

    # -- the rest ------------------------------------------------------------------------------

    def pipelines(self) -> list[Shape]:
        """Return registered pipelines, by name."""
        return list(self._api.views.list_pipelines())

    def alerts(self, *, state: str, customer: str | None, limit: int) -> list[Shape]:
        """Return alerts, newest first."""
        query = {"state": None if state == "all" else state, "customer_id": customer}
        return read_pages(self._api.views.list_alerts, limit, query)

    def overview(self) -> Shape:
        """Return queue counts and today's totals."""
        found: Shape = self._api.views.pipeline_status()
        return found

    def sessions(self) -> list[Shape]:
        """Return the sessions of live processes."""
        return list(self._api.views.list_sessions())

    def keys(self, *, customer: str | None, with_revoked: bool, limit: int) -> list[Shape]:
        """Return API keys, oldest first."""
        query = {"customer_id": customer, "with_revoked": with_revoked}
        return read_pages(self._api.keys.list_keys, limit, query)

    def key_create(self, wanted: Shape) -> Shape:
        """Create a key and return it with its secret."""
        return _shown(self._api.keys.create_key(_given(wanted)))

    def key_rotate(self, key_id: str, overlap: str) -> Shape:
        """Replace a key's secret and return the new one."""
        return _shown(self._api.keys.rotate_key(key_id, {"overlap": overlap}))

    def key_revoke(self, key_id: str, reason: str) -> bool:
        """Revoke a key; return False if it was already revoked."""
        return bool(self._api.keys.revoke_key(key_id, {"reason": reason})["changed"])


def _given(fields: Mapping[str, Any]) -> Shape:
    return {name: value for name, value in fields.items() if value is not None}


def _shown(made: Shape) -> Shape:
    if made["key"] is None:
        key_id = made["info"]["key_id"]
        raise Conflict(
            f"{key_id} was created, but the response with its secret was lost. Replace the "
            f"secret: penstock keys rotate {key_id} --overlap 0s"
        )
    return made
