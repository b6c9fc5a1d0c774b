"""Commands on the database: the client's use cases, answered in the API's shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.access import shapes
from penstock.assembly.process import describe_database
from penstock.cli.backends.protocol import RunsAsked, Shape, Wanted, named
from penstock.client import Client
from penstock.core.clock import parse_duration, parse_iso
from penstock.core.errors import PenstockError
from penstock.core.fields import check_customer
from penstock.core.ids import decode, encode
from penstock.monitoring.shapes import alert_shape, overview_shape, pipeline_shape, session_shape
from penstock.runs.client.runs import RunFilter, Submission, place_of
from penstock.runs.shapes import detail_shape, run_shape
from penstock.schedules.shapes import (
    audit_shape,
    config_shape,
    fire_shape,
    ledger_shape,
    pause_shape,
)

if TYPE_CHECKING:
    from penstock.cli.backends.limits import LimitCases
    from penstock.cli.backends.protocol_bus import BusCases
    from penstock.cli.backends.protocol_dead_letters import LetterCases
    from penstock.cli.backends.protocol_flows import FlowCases

SUBJECTS = ("customer_id", "cfg_id", "pipeline")


class Here:
    """The use cases over a client."""

    def __init__(self, client: Client, database_url: str) -> None:
        self._client = client
        self.where = describe_database(database_url)

    @property
    def flows(self) -> FlowCases:
        """The use cases about flows and gates."""
        # As in `there`: a command about runs pays nothing for them.
        from penstock.cli.backends.database_flows import HereFlows

        return HereFlows(self._client)

    @property
    def letters(self) -> LetterCases:
        """The use cases about dead letters."""
        # As in `there`: a command about runs pays nothing for them.
        from penstock.cli.backends.database_dead_letters import HereLetters

        return HereLetters(self._client)

    @property
    def bus(self) -> BusCases:
        """The use cases about topics and subscriptions."""
        # As in `there`: a command about runs pays nothing for them.
        from penstock.cli.backends.database_bus import HereBus

        return HereBus(self._client)

    @property
    def limits(self) -> LimitCases:
        """The use cases about limits."""
        # As in `there`: a command about runs pays nothing for them.
        from penstock.cli.backends.limits import HereLimits

        return HereLimits(self._client)

    def now(self) -> int:
        """The database's time."""
        return self._client.views.now()

    # -- runs ----------------------------------------------------------------------------------

    def runs(self, asked: RunsAsked) -> list[Shape]:
        """Runs, live ones first, newest first."""
        client, place = self._client, None
        if asked.before is not None:
            place = place_of(client.runs.get(decode("run", asked.before), asked.customer))
        wanted = RunFilter(
            state=asked.state,
            slot_from=asked.since or 0,
            slot_to=asked.until or RunFilter().slot_to,
            limit=asked.limit,
        )
        found = client.runs.page_after(wanted, place, asked.customer, pipeline=asked.pipeline)
        return [run_shape(run) for run in found]

    def run(self, run_id: str) -> Shape:
        """A run with its attempts, journal and progress."""
        return detail_shape(self._client.runs.detail(decode("run", run_id)))

    def submit(self, customer: str, wanted: Shape, key: str | None) -> Shape:
        """Create a run."""
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
        """Cancel a run."""
        return self._client.runs.cancel(decode("run", run_id), reason=reason)

    def retry(self, run_id: str) -> str:
        """Run an ended run again."""
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
        """Configs, oldest first."""
        found = self._client.configs.page(
            customer=customer,
            pipeline=pipeline,
            is_active=is_active,
            after=0 if after is None else decode("cfg", after),
            limit=limit,
        )
        return [config_shape(config) for config in found]

    def config(self, config_id: str) -> Shape:
        """One config."""
        return config_shape(self._client.configs.get(decode("cfg", config_id)))

    def check(self, wanted: Wanted) -> tuple[int, PenstockError] | None:
        """The first config that would be refused."""
        for place, (customer, fields) in enumerate(wanted):
            try:
                self._client.configs.check(fields)
                check_customer(customer)
            except PenstockError as error:
                return place, error
        return None

    def create(self, wanted: Wanted, reason: str) -> list[Shape]:
        """Create configs: all of them, or none."""
        made = self._client.configs.create_many(wanted, reason=reason)
        return [config_shape(config) for config in made]

    def update(self, config_id: str, fields: Shape, *, version: int | None, reason: str) -> Shape:
        """Change a config."""
        changed = self._client.configs.update(
            decode("cfg", config_id), fields, version=version, reason=reason
        )
        return config_shape(changed)

    def delete(self, config_id: str, reason: str) -> None:
        """Delete a config."""
        self._client.configs.delete(decode("cfg", config_id), reason=reason)

    def start(self, config_id: str) -> list[str]:
        """Start a config now."""
        return [encode("run", n) for n in self._client.configs.start(decode("cfg", config_id))]

    def preview(self, config_id: str, n: int) -> list[Shape]:
        """The next starts of a config."""
        fires = self._client.configs.preview(decode("cfg", config_id), n)
        return [fire_shape(fire) for fire in fires]

    def audit(self, customer: str, *, config_id: str | None, limit: int) -> list[Shape]:
        """A customer's audit chain, oldest first."""
        number = None if config_id is None else decode("cfg", config_id)
        rows = self._client.configs.audit(customer, config_id=number, limit=limit)
        return [audit_shape(row) for row in rows]

    def ledger(self, config_id: str, limit: int) -> list[Shape]:
        """Slots that did not start, newest first."""
        rows = self._client.configs.ledger(decode("cfg", config_id), limit)
        return [ledger_shape(row) for row in rows]

    # -- the rest ------------------------------------------------------------------------------

    def pipelines(self) -> list[Shape]:
        """Registered pipelines, by name."""
        return [pipeline_shape(info) for info in self._client.views.pipelines()]

    def pauses(self) -> list[Shape]:
        """Pauses in force."""
        return [pause_shape(pause) for pause in self._client.pauses.in_force()]

    def pause(self, scope: str, subject: str | None, reason: str) -> bool:
        """Stop starting."""
        with named("subject", SUBJECTS):
            return self._client.pauses.pause(scope, subject, reason=reason)

    def resume(self, scope: str, subject: str | None, reason: str) -> bool:
        """Lift a pause."""
        with named("subject", SUBJECTS):
            return self._client.pauses.resume(scope, subject, reason=reason)

    def alerts(self, *, state: str, customer: str | None, limit: int) -> list[Shape]:
        """Alerts, newest first."""
        rows = self._client.views.alerts(
            state=None if state == "all" else state, customer=customer, limit=limit
        )
        return [alert_shape(row) for row in rows]

    def overview(self) -> Shape:
        """What is going on, and what ended today."""
        next_slot_at, now = self._client.views.next_slot()
        return overview_shape(self._client.views.overview(), now, next_slot_at)

    def sessions(self) -> list[Shape]:
        """Live processes."""
        return [session_shape(session) for session in self._client.views.sessions()]

    def keys(self, *, customer: str | None, with_revoked: bool, limit: int) -> list[Shape]:
        """API keys, oldest first."""
        found = self._client.keys.page(customer=customer, with_revoked=with_revoked, limit=limit)
        return [shapes.key_shape(key) for key in found]

    def key_create(self, wanted: Shape) -> Shape:
        """Make a key."""
        lasts = wanted.get("expires")
        expires_at = None if lasts is None else self.now() + parse_duration(lasts, "expires")
        made = self._client.keys.create(
            wanted["name"],
            wanted["role"],
            customer=wanted.get("customer_id"),
            expires_at=expires_at,
            rate=wanted.get("rate"),
        )
        return shapes.made_key_shape(made)

    def key_rotate(self, key_id: str, overlap: str) -> Shape:
        """Give a key a new secret."""
        overlap_us = parse_duration(overlap, "overlap")
        return shapes.made_key_shape(
            self._client.keys.rotate(decode("key", key_id), overlap_us=overlap_us)
        )

    def key_revoke(self, key_id: str, reason: str) -> bool:
        """End a key."""
        return self._client.keys.revoke(decode("key", key_id), reason=reason)
