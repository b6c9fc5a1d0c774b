"""Implement the commands' use cases on the database, with results in the API's JSON shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.access import shapes
from penstock.assembly.process import describe_database
from penstock.cli.backends.protocol import RunQuery, Shape, Wanted, rename_field
from penstock.client import Client
from penstock.core.clock import parse_duration, parse_iso
from penstock.core.errors import PenstockError
from penstock.core.fields import check_customer
from penstock.core.ids import decode, encode
from penstock.monitoring.shapes import alert_shape, overview_shape, pipeline_shape, session_shape
from penstock.runs.client.runs import RunFilter, Submission, position_of
from penstock.runs.shapes import detail_shape, run_shape
from penstock.schedules.shapes import (
    audit_shape,
    config_shape,
    ledger_shape,
    occurrence_shape,
    pause_shape,
)

if TYPE_CHECKING:
    from penstock.cli.backends.protocol_flows import FlowCases

SUBJECTS = ("customer_id", "cfg_id", "pipeline")


class DatabaseBackend:
    """Backend of the commands that works on the database through the client."""

    def __init__(self, client: Client, database_url: str) -> None:
        self._client = client
        self.where = describe_database(database_url)

    @property
    def flows(self) -> FlowCases:
        """Use cases for flows and gates."""
        # Imported here so that commands that do not need it start faster.
        from penstock.cli.backends.database_flows import DatabaseFlows

        return DatabaseFlows(self._client)

    def now(self) -> int:
        """Return the database's current time, in micros."""
        return self._client.views.now()

    # -- runs ----------------------------------------------------------------------------------

    def runs(self, asked: RunQuery) -> list[Shape]:
        """Return runs: unfinished ones first, then newest first."""
        client, position = self._client, None
        if asked.before is not None:
            position = position_of(client.runs.get(decode("run", asked.before), asked.customer))
        wanted = RunFilter(
            state=asked.state,
            occurrence_from=asked.since or 0,
            occurrence_to=asked.until or RunFilter().occurrence_to,
            limit=asked.limit,
        )
        found = client.runs.page_after(wanted, position, asked.customer, pipeline=asked.pipeline)
        return [run_shape(run) for run in found]

    def run(self, run_id: str) -> Shape:
        """Return a run with its attempts, journal and progress."""
        return detail_shape(self._client.runs.detail(decode("run", run_id)))

    def submit(self, customer: str, wanted: Shape, key: str | None) -> Shape:
        """Create a run and return it."""
        at = wanted.get("scheduled_time")
        submission = Submission(
            pipeline=wanted["pipeline_template"],
            customer=customer,
            processor=wanted.get("processor"),
            partition=wanted.get("partition"),
            parameters=wanted.get("parameters"),
            priority=wanted["execution_priority"],
            at=None if at is None else parse_iso(at, "at"),
            ordering_key=wanted.get("ordering_key"),
        )
        run_id = self._client.runs.submit(submission, key=key)
        return run_shape(self._client.runs.get(run_id))

    def cancel(self, run_id: str, reason: str) -> str:
        """Cancel a run and return the outcome."""
        return self._client.runs.cancel(decode("run", run_id), reason=reason)

    def retry(self, run_id: str) -> str:
        """Run a finished run again and return the new run's id."""
        return encode("run", self._client.runs.retry(decode("run", run_id)))

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

    def pipelines(self) -> list[Shape]:
        """Return registered pipelines, by name."""
        return [pipeline_shape(info) for info in self._client.views.pipelines()]

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

    def alerts(self, *, state: str, customer: str | None, limit: int) -> list[Shape]:
        """Return alerts, newest first."""
        rows = self._client.views.alerts(
            state=None if state == "all" else state, customer=customer, limit=limit
        )
        return [alert_shape(row) for row in rows]

    def overview(self) -> Shape:
        """Return queue counts and today's totals."""
        next_at, now = self._client.views.next_occurrence()
        return overview_shape(self._client.views.overview(), now, next_at)

    def sessions(self) -> list[Shape]:
        """Return the sessions of live processes."""
        return [session_shape(session) for session in self._client.views.sessions()]

    def keys(self, *, customer: str | None, with_revoked: bool, limit: int) -> list[Shape]:
        """Return API keys, oldest first."""
        found = self._client.keys.page(customer=customer, with_revoked=with_revoked, limit=limit)
        return [shapes.key_shape(key) for key in found]

    def key_create(self, wanted: Shape) -> Shape:
        """Create a key and return it with its secret."""
        lifetime = wanted.get("expires")
        expires_at = None if lifetime is None else self.now() + parse_duration(lifetime, "expires")
        made = self._client.keys.create(
            wanted["name"],
            wanted["role"],
            customer=wanted.get("customer_id"),
            expires_at=expires_at,
            rate=wanted.get("rate"),
        )
        return shapes.new_key_shape(made)

    def key_rotate(self, key_id: str, overlap: str) -> Shape:
        """Replace a key's secret and return the new one."""
        overlap_us = parse_duration(overlap, "overlap")
        return shapes.new_key_shape(
            self._client.keys.rotate(decode("key", key_id), overlap_us=overlap_us)
        )

    def key_revoke(self, key_id: str, reason: str) -> bool:
        """Revoke a key; return False if it was already revoked."""
        return self._client.keys.revoke(decode("key", key_id), reason=reason)
