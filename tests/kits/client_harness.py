"""A harness for tests of the client and the services: a store, a clock, a client, three pipelines.

`nightly` has one processor and a parameter schema, `pair` two entry processors, `outside` one that
is executed from outside. Claims and endings go through the same verbs a worker uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.access.store import registry
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.ids import decode, encode
from penstock.db.store import Row, Store, Tx
from penstock.pipelines.declare.needs import historical, same_day
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.modes import game_day_modes
from penstock.pipelines.partition import text
from penstock.runs import attempt_result
from penstock.runs.admitter import Admitter
from penstock.runs.records import Run, RunDetail, Submission
from penstock.runs.rows import FinishedRun, HeldRun, RunEnd
from penstock.runs.store import leases, runs
from penstock.runs.store.finish import run_end_many
from penstock.runs.sweeper import Sweeper
from penstock.schedules.rows import ConfigRow
from penstock.schedules.scheduler import Scheduler, SchedulerOptions, TickResult
from penstock.schedules.store.schedule import ledger_list
from penstock.testing.clock import VirtualClock
from tests.kits.configs import create_config, start

T = TypeVar("T")

SCHEMA = {
    "type": "object",
    "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 31, "default": 1}},
    "additionalProperties": True,
}


def pipelines() -> list[Pipeline]:
    """What the harness registers."""

    def work(run: Any) -> None:
        """Never called here: tests end runs themselves."""

    nightly = Pipeline("nightly", parameters=SCHEMA)
    nightly.processor("work")(work)
    pair = Pipeline("pair")
    entry = pair.phase("entry")
    entry.processor("left")(work)
    entry.processor("right")(work)
    outside = Pipeline("outside")
    outside.phase("main").external("push")
    return [nightly, pair, outside]


def gated() -> Pipeline:
    """A pipeline of two phases, the second behind a gate that needs much: for flows."""

    def work(run: Any) -> None:
        """Never called here."""

    made = Pipeline(
        "gated",
        partition=text("day"),
        warehouse="w",
        modes=game_day_modes(),
        customer_column="shop",
    )
    raw = made.phase("raw")
    raw.external("far")
    needs = [historical("t.days", days=3), same_day("t.rows", fail_if_missing=True)]
    made.phase("next", after=raw).processor("near", needs=needs)(work)
    return made


class Harness:
    """One client over one store, under a clock that the test moves."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.events = Events()
        self.client = Client(store, actor="tester")
        self.client.register(pipelines())
        self.scheduler = Scheduler(store, events=self.events, clock=clock)
        self.admitter = Admitter(store)
        self.sweeper = Sweeper(store, jitter=lambda: 0.0, events=self.events)

    # -- the store -----------------------------------------------------------------------------

    def write(self, body: Callable[[Tx], T]) -> T:
        """One transaction."""
        return self.store.write(body)

    def sql(self, text: str) -> list[Row]:
        """Run raw SQL in a transaction of its own."""

        def body(tx: Any) -> list[Row]:
            cursor = tx._connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

        return self.store.write(body)

    def column(self, text: str) -> list[Any]:
        """The first column of a raw query."""
        return [row[0] for row in self.sql(text)]

    def counts(self, *tables: str) -> dict[str, int]:
        """How many rows tables have; every table a use case may write, unless named."""
        names = tables or (
            "runs", "history", "configs", "schedule", "audit", "journal", "customers", "ledger",
            "requests", "pauses", "dead_letters", "alerts", "flows",
        )  # fmt: skip
        each = ", ".join(f"(SELECT count(*) FROM {name})" for name in names)
        return dict(zip(names, self.sql(f"SELECT {each}")[0], strict=True))

    # -- configs -------------------------------------------------------------------------------

    def config(self, customer: str = "acme", **fields: Any) -> ConfigRow:
        """Create a config of `nightly` that fires every hour."""
        given: dict[str, Any] = {"pipeline_template": "nightly", **fields}
        if not {"schedule_cron", "schedule_interval_minutes", "event_topic"} & set(fields):
            given["schedule_cron"] = "0 * * * *"
        return create_config(self.client, customer, given)

    def start(self, config: ConfigRow | int, **more: Any) -> list[int]:
        """Start a config now; return the ids of its runs."""
        return start(self.client, config, **more)

    def schedule_row(self, config_id: int) -> Row | None:
        """(cadence, next_run_time, evaluated_to), None when it is off the clock."""
        rows = self.sql(
            "SELECT cadence, next_run_time, evaluated_to FROM schedule "
            f"WHERE config_id = {config_id}"
        )
        return rows[0] if rows else None

    def ledger(self, config_id: int) -> list[tuple[int, int, int, str]]:
        """(slot_from, slot_to, slots, outcome), oldest first."""
        rows = self.store.read(lambda tx: ledger_list(tx, config_id, 10_000))
        return [(r.slot_from, r.slot_to, r.occurrences, r.outcome) for r in reversed(rows)]

    def occurrences(self, config_id: int) -> list[int]:
        """Occurrences of a config that started, live and ended, in order of creation."""
        rows = self.sql(
            f"SELECT run_id, slot FROM runs WHERE config_id = {config_id} AND attempt = 1 UNION "
            f"SELECT run_id, slot FROM history WHERE config_id = {config_id} AND attempt = 1"
        )
        return [slot for _, slot in sorted(rows)]

    # -- runs ----------------------------------------------------------------------------------

    def submit(self, pipeline: str = "nightly", **fields: Any) -> int:
        """Submit one run of acme and return its database id."""
        wanted = Submission(**{"pipeline": pipeline, "customer": "acme", **fields})
        return decode("run", self.client.runs.submit(wanted).run_id)

    def run(self, run_id: int) -> Run:
        """Return the record of a run, by its database id."""
        return self.client.runs.get(encode("run", run_id))

    def detail(self, run_id: int) -> RunDetail:
        """Return a run with attempts, journal and progress, by its database id."""
        return self.client.runs.detail(encode("run", run_id))

    def cancel(self, run_id: int, reason: str = "", *, actor: str = "tester") -> str:
        """Cancel a run by its database id and return the outcome."""
        name = encode("run", run_id)
        return self.client.as_actor(actor).runs.cancel(name, reason=reason).outcome

    def retry(self, run_id: int, *, actor: str = "tester") -> int:
        """Retry a run by its database id and return that of the new one."""
        made = self.client.as_actor(actor).runs.retry(encode("run", run_id))
        return decode("run", made.run_id)

    def session(self, name: str = "w1", lease_us: int = 30_000_000) -> int:
        """Open a worker's session; its lease lasts 30 seconds by default."""
        params = {
            "boot_id": f"{name}-{self.clock.now()}", "kind": "worker", "name": name, "host": "h",
            "pid": 1, "pool": None, "slots": 5, "lease_us": lease_us,
        }  # fmt: skip
        return self.write(lambda tx: leases.session_open(tx, params))

    def claim(
        self, n: int = 100, *, start: bool = True, session: int | None = None, pool: str = "default"
    ) -> list[HeldRun]:
        """Claim what is ready in a pool."""
        rows = [row for row in self.store.read(registry.processor_list) if row.pool == pool]
        claim = runs.Claim(
            pool_key=rows[0].pool_key,
            processors=[row.processor_key for row in rows],
            n=n,
            session_id=session,
            claimed_by="tester",
            start=start,
        )
        return self.write(lambda tx: runs.run_claim(tx, claim))

    def take(self, **options: Any) -> HeldRun:
        """Claim exactly one run."""
        (held,) = self.claim(1, **options)
        return held

    def end(self, *finishes: RunEnd) -> list[FinishedRun]:
        """End runs in one transaction."""
        return self.write(lambda tx: run_end_many(tx, finishes))

    def complete(self, *held: HeldRun) -> list[FinishedRun]:
        """End runs well."""
        return self.end(*[attempt_result.completed_result(run) for run in held])

    def fail(self, *held: HeldRun, error_type: str = "VALIDATION_ERROR") -> list[FinishedRun]:
        """Fail runs; by default permanently."""
        failure = attempt_result.AttemptFailure(error_type=error_type)
        return self.end(*[attempt_result.failed(run, failure, jitter=0.0) for run in held])

    def dead_run(self, **fields: Any) -> int:
        """Submit a run and let it die; its id."""
        run_id = self.submit(**fields)
        held = self.take()
        assert held.run_id == run_id
        (ended,) = self.fail(held)
        assert ended.is_dead
        return run_id

    def drain(self) -> int:
        """Admit, claim and complete until nothing is ready; how many."""
        done = 0
        self.admitter.run_once()
        while held := self.claim(500):
            done += len(self.complete(*held))
            self.admitter.run_once()
        return done

    # -- services ------------------------------------------------------------------------------

    def tick(self, **options: Any) -> TickResult:
        """Tick as a scheduler with these options, or as the harness's own."""
        if not options:
            return self.scheduler.run_once()
        chosen = SchedulerOptions(**options)
        return Scheduler(self.store, chosen, events=self.events, clock=self.clock).run_once()
