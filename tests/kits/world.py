"""Fixture world of the conformance tests: one pipeline, some customers, and short helper methods.

Each helper opens its own transaction; `write` and `read` combine several. `sql` bypasses the
store's statements, to tamper with rows and to inspect them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.access.store import registry
from penstock.audit.rows import JournalRow
from penstock.audit.store import journal
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.core.naming import CustomerKey
from penstock.db.store import Row, Store, Tx
from penstock.flows.store.from_schedule import occurrences_open
from penstock.runs.rows import FinishedRun, HeldRun, NewRun, RunEnd, RunRow
from penstock.runs.store import admission, finish, leases, runs
from penstock.schedules.cadence import Cadence, CatchUp, cron
from penstock.schedules.misfire import plan_misfires
from penstock.schedules.rows import DueOccurrence, StartPace, TickCounts
from penstock.schedules.store import configs, schedule
from penstock.testing.clock import VirtualClock

T = TypeVar("T")

LATE_US = 5 * MINUTE
TABLES = (
    "runs", "history", "journal", "run_sums", "config_health", "dead_letters", "outbox", "leases",
    "progress", "customers", "counters", "ledger", "flows",
)  # fmt: skip


class World:
    """A store with the pipeline `etl` (one processor) and the customer `acme`."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.pool = self.write(lambda tx: registry.pool_ensure(tx, "default"))
        self.pipeline = self.pipeline_add("etl", ["extract"])
        self.processor = self.processors("etl")[0]
        self.customer = self.customers("acme")[0]

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run one write transaction."""
        return self.store.write(body)

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run one read transaction."""
        return self.store.read(body)

    def sql(self, text: str) -> list[Row]:
        """Run raw SQL in its own transaction. Return its rows, if any."""

        def body(tx: Any) -> list[Row]:
            cursor = tx._connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

        return self.store.write(body)

    def value(self, text: str) -> Any:
        """Return the single value of a raw query."""
        return self.sql(text)[0][0]

    def dump(self, *tables: str) -> dict[str, list[Row]]:
        """Return all rows of the tables that a transition may touch, in a stable order."""
        return {
            table: sorted(self.sql(f"SELECT * FROM {table}"), key=repr)
            for table in tables or TABLES
        }

    # -- names ---------------------------------------------------------------------------------

    def customers(self, *names: str) -> list[int]:
        """Return customer keys, in the order of the names."""
        numbers = self.write(lambda tx: registry.customer_ensure_many(tx, names))
        return [numbers[name] for name in names]

    def pipeline_add(
        self, name: str, processors: Sequence[str], *, has_flow: bool = False, **more: Any
    ) -> int:
        """Register a pipeline whose processors are all entries of its first phase."""

        def body(tx: Tx) -> int:
            text = definition(name, processors)
            number = registry.pipeline_put(
                tx, name=name, digest=f"d{len(text)}", definition=text, has_flow=has_flow
            )
            for processor in processors:
                params = {
                    "pipeline": number, "phase": "main", "name": processor, "pool": self.pool,
                    "is_entry": True, "max_execution_us": HOUR, "retry": None, "rate_second": 0.0,
                    "rate_gb": 0.0, **more,
                }  # fmt: skip
                registry.processor_put(tx, params)
            return number

        return self.write(body)

    def processors(self, pipeline: str) -> list[int]:
        """Return the keys of a pipeline's processors."""
        rows = self.read(registry.processor_list)
        return [row.processor_key for row in rows if row.pipeline == pipeline]

    # -- runs ----------------------------------------------------------------------------------

    def new(self, **fields: Any) -> NewRun:
        """Build a run of acme's extract, due now."""
        return NewRun(**{"customer_key": self.customer, "processor_key": self.processor, **fields})

    def insert(self, n: int = 1, **fields: Any) -> list[int]:
        """Insert `n` equal runs. Return their ids."""
        return self.insert_all([self.new(**fields)] * n)

    def insert_one(self, **fields: Any) -> int:
        """Insert one run. Return its id."""
        (run_id,) = self.insert(**fields)
        return run_id

    def insert_all(self, new: Sequence[NewRun]) -> list[int]:
        """Insert runs. Return their ids."""
        return self.write(lambda tx: runs.run_insert_many(tx, new, "tester"))

    def claim(self, n: int = 100, **fields: Any) -> list[HeldRun]:
        """Claim ready runs of all processors."""
        defaults: dict[str, Any] = {"pool_key": self.pool, "n": n, "claimed_by": "tester"}
        if "processors" not in fields:
            numbers = self.read(registry.processor_list)
            defaults["processors"] = [row.processor_key for row in numbers]
        claim = runs.Claim(**{**defaults, **fields})
        return self.write(lambda tx: runs.run_claim(tx, claim))

    def claim_one(self, **fields: Any) -> HeldRun:
        """Claim exactly one ready run."""
        (held,) = self.claim(n=1, **fields)
        return held

    def running(self, **fields: Any) -> HeldRun:
        """Insert a run and claim it as started."""
        run_id = self.insert_one(**fields)
        held = self.claim_one(start=True)
        assert held.run_id == run_id
        return held

    def start(self, *held: HeldRun) -> set[int]:
        """Mark claimed runs as running."""
        return self.write(lambda tx: runs.run_start_many(tx, [(h.run_id, h.token) for h in held]))

    def release(self, *held: HeldRun, delay_us: int = 0) -> set[int]:
        """Release runs."""
        rows = [(h.run_id, h.token, delay_us) for h in held]
        return self.write(lambda tx: finish.run_release_many(tx, rows))

    def lapse(self, *held: HeldRun) -> set[int]:
        """Lapse claims."""
        return self.write(lambda tx: finish.run_lapse_many(tx, [(h.run_id, h.token) for h in held]))

    def finish_all(self, finishes: Sequence[RunEnd]) -> list[FinishedRun]:
        """End runs."""
        return self.write(lambda tx: runs.run_finish_many(tx, finishes))

    def complete(self, *held: HeldRun, **fields: Any) -> list[FinishedRun]:
        """End runs as COMPLETED."""
        return self.finish_all([done(h, **fields) for h in held])

    def fail(self, *held: HeldRun, **fields: Any) -> list[FinishedRun]:
        """End runs as FAILED; give retry_delay_us or is_dead."""
        return self.finish_all([failed(h, **fields) for h in held])

    def run(self, run_id: int, customer: CustomerKey | None = None) -> RunRow:
        """Return a run, live or ended."""
        found = self.read(lambda tx: runs.run_get(tx, run_id, customer))
        assert found is not None, f"run {run_id} is lost"
        return found

    def states(self, run_ids: Iterable[int]) -> list[str]:
        """Return the states of runs."""
        return [self.run(run_id).state for run_id in run_ids]

    def marks(self, run_ids: Iterable[int]) -> list[int | None]:
        """Return the admission values of live runs."""
        return [self.run(run_id).admission for run_id in run_ids]

    def admit(self, n: int = 10_000) -> int:
        """Admit due runs."""
        return sum(self.write(lambda tx: admission.run_admit_due(tx, n)).values())

    def drain(self, batch: int = 50, *, raise_clock: bool = True) -> list[HeldRun]:
        """Claim and complete everything that is ready. Return the claims in order."""
        order: list[HeldRun] = []
        while held := self.claim(n=batch):
            order += held
            self.complete(*held)
            if raise_clock:
                self.write(partial(runs.fair_clock_raise, claimed=held))
        return order

    def history(self, run_id: int, columns: str) -> Row:
        """Return columns of an ended run."""
        (row,) = self.sql(f"SELECT {columns} FROM history WHERE run_id = {run_id}")
        return row

    def journal(self, run_id: int) -> list[JournalRow]:
        """Return the journal of a run."""
        return self.read(lambda tx: journal.journal_for(tx, "run", run_id))

    # -- configs -------------------------------------------------------------------------------

    def config(self, **fields: Any) -> int:
        """Create a config that is due every hour from the next full hour on. Return its id."""
        return self.config_many(1, **fields)[0]

    def config_many(self, n: int, **fields: Any) -> list[int]:
        """Create `n` equal scheduled configs; with `cadence=None` they are not scheduled."""
        cadence = fields.pop("cadence", cron("0 * * * *"))
        first_occurrence = fields.pop("first_occurrence", self.clock.now() + HOUR)
        offset_us = fields.pop("offset_us", 0)

        def body(tx: Tx) -> list[int]:
            number = None if cadence is None else schedule.cadence_ensure(tx, cadence)
            row = config_row(self.customer, self.pipeline, number, **fields)
            ids = configs.config_insert_many(tx, [row] * n)
            if offset_us:
                configs.config_set_offset_many(tx, [(i, offset_us) for i in ids])
            if number is not None:
                rest = (fields.get("catch_up", "one"), fields.get("catch_up_window_us", DAY))
                schedule.schedule_put_many(
                    tx, [(i, number, first_occurrence, first_occurrence - 1, *rest) for i in ids]
                )
            return ids

        return self.write(body)

    def clock_row(self, config_id: int) -> tuple[int, int]:
        """Return (next_run_time, evaluated_to) of a config."""
        row = self.write(lambda tx: schedule.schedule_get(tx, config_id))
        assert row is not None
        return row[1], row[2]

    def tick(self, n: int = 1000, *, gap_us: int = 1000, late_us: int = LATE_US) -> TickCounts:
        """Start one batch of due configs, as the scheduler does."""
        return self.write(lambda tx: tick(tx, n, gap_us=gap_us, late_us=late_us))

    def ledger(self, config_id: int) -> list[tuple[int, int, int, str]]:
        """Return (slot_from, slot_to, slots, outcome), oldest first."""
        rows = self.read(lambda tx: schedule.ledger_list(tx, config_id, 1000))
        return [(r.slot_from, r.slot_to, r.occurrences, r.outcome) for r in reversed(rows)]

    def runs_of(self, config_id: int) -> list[Row]:
        """Return (run_id, slot, scheduled_time, admission) of a config's live runs."""
        return self.sql(
            "SELECT run_id, slot, scheduled_time, admission FROM runs "
            f"WHERE config_id = {config_id} ORDER BY run_id"
        )

    # -- processes -----------------------------------------------------------------------------

    def session(self, name: str = "w1", lease_us: int = 30_000_000) -> int:
        """Open a session."""
        params = {
            "boot_id": name, "kind": "worker", "name": name, "host": "h", "pid": 1,
            "pool": self.pool, "slots": 5, "lease_us": lease_us,
        }  # fmt: skip
        return self.write(lambda tx: leases.session_open(tx, params))


def tick(tx: Tx, n: int, *, gap_us: int, late_us: int) -> TickCounts:
    """Take due configs, plan their occurrences and start them, like one batch of the scheduler."""
    groups = schedule.schedule_take_due(tx, n)
    if not groups:
        return TickCounts(0, 0, 0, 0, 0, 0, 0)
    cadences = schedule.cadence_list(tx, {group.cadence for group in groups})
    plans = []
    late = 0
    for group in groups:
        found: Cadence = cadences[group.cadence]
        slots = plan_misfires(
            found, group.occurrence_time, group.now, CatchUp(group.catch_up), group.window_us
        )
        is_late = slots.run_at is not None and group.now - slots.run_at > late_us
        late += len(group.config_ids) if is_late else 0
        plans.append((group, slots, is_late))
    cursor = schedule.catch_up_reserve(tx, late * gap_us) if late else None
    counts = schedule.schedule_start_many(tx, plans, cursor=cursor, gap_us=gap_us)
    if counts.flows is None:
        return counts
    taken = [DueOccurrence._make(row) for row in json.loads(counts.flows)]
    opened = occurrences_open(tx, taken, StartPace(cursor, gap_us, counts.given))
    return counts._replace(runs=counts.runs + opened.runs)


def definition(name: str, processors: Sequence[str]) -> str:
    """Return the declaration of a pipeline with one phase, as JSON."""
    phase = {"name": "main", "after": [], "processors": [{"name": p} for p in processors]}
    return json.dumps({"name": name, "timezone": "UTC", "phases": [phase]})


def config_row(customer: int, pipeline: int, cadence: int | None, **fields: Any) -> tuple[Any, ...]:
    """Return a config in the column order of `config_insert_many`."""
    values: dict[str, Any] = {
        "customer": customer, "pipeline": pipeline, "provider": "GCP", "domain": "COST",
        "schedule_type": "CRON", "cadence": cadence, "timezone": "UTC", "event_topic": None,
        "event_filter": None, "parameters": "{}", "retry": None, "priority": 5,
        "max_execution_us": HOUR, "sla_us": 30 * MINUTE, "catch_up": "one",
        "catch_up_window_us": DAY, "overlap": "skip", "jitter_us": 0, "is_active": True,
        "created_by": "tester", "event_mapping": None, "expires_us": None,
    }  # fmt: skip
    assert set(fields) <= set(values), set(fields) - set(values)
    return tuple({**values, **fields}.values())


def done(held: HeldRun, **fields: Any) -> RunEnd:
    """Build the end of a successful run."""
    values: dict[str, Any] = {"final_state": "COMPLETED", "status": "SUCCESS", **fields}
    return RunEnd(run_id=held.run_id, token=held.token, **values)


def failed(held: HeldRun, **fields: Any) -> RunEnd:
    """Build the end of a failed run."""
    values: dict[str, Any] = {
        "final_state": "FAILED", "status": "FAILURE", "error_type": "TRANSIENT_NETWORK", **fields
    }  # fmt: skip
    return RunEnd(run_id=held.run_id, token=held.token, **values)
