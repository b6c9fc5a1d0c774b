"""Implement the commands' use cases through the API, with the generated client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.backends.paging import read_pages
from penstock.cli.backends.protocol import RunQuery, Shape, Wanted, rename_field
from penstock.core.clock import iso
from penstock.core.errors import Conflict, Forbidden, PenstockError
from penstock.core.fields import check_customer
from penstock.core.ids import new_correlation_id
from penstock.remote import Api
from penstock.remote.problems import error_from_code

if TYPE_CHECKING:
    from penstock.cli.backends.protocol_flows import FlowCases

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
    def flows(self) -> FlowCases:
        """Use cases for flows and gates."""
        # Imported here so that commands that do not need it start faster.
        from penstock.cli.backends.http_flows import HttpFlows

        return HttpFlows(self._whole)

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

    def pipelines(self) -> list[Shape]:
        """Return registered pipelines, by name."""
        return list(self._api.views.list_pipelines())

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


def _item(one: tuple[str, Mapping[str, Any]], reason: str) -> Shape:
    customer, fields = one
    return {**fields, "customer_id": customer, "reason": reason}


def _refusal(outcome: Mapping[str, Any]) -> PenstockError:
    names = ("field", "expected", "got", "fix")
    detail = {name: outcome[name] for name in names if outcome.get(name) is not None}
    return error_from_code(str(outcome["code"]), str(outcome["detail"]), detail)


def _shown(made: Shape) -> Shape:
    if made["key"] is None:
        key_id = made["info"]["key_id"]
        raise Conflict(
            f"{key_id} was created, but the response with its secret was lost. Replace the "
            f"secret: penstock keys rotate {key_id} --overlap 0s"
        )
    return made
