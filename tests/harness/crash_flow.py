"""The flow used for crash tests, the process that drives it, and the checks of its result.

Four phases: two processors of which one fails at first, a gate that waits for data, a processor
with its own gate, and a last phase. Both first processors publish, one submits a run, and the last
one waits for a sub-flow. `drive` does everything one process does, from registration to
the end of the flow, over the real services in one thread; it can continue from any state.
`check_result` reads the tables directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

from penstock.bus.records import Topic
from penstock.client import Client
from penstock.core.clock import HOUR, MINUTE
from penstock.core.stored_json import loads
from penstock.db.store import Store
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.gate import decide
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.gates.rows import DecisionFilter
from penstock.flows.gates.store.gates import decision_list
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.flows.items import item_list
from penstock.flows.items.sources import ItemRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.pipelines.declare.needs import same_day
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.modes import game_day_modes
from penstock.pipelines.partition import text
from penstock.runs.admitter import Admitter
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore

NAME: Final = "crash"
ROUNDS_MAX: Final = 400
TRIGGERS: Final = ["each/soon", "fan/", "last/", "middle/", "raw/"]
"""Every trigger of the flow, as phase/processor."""
PROCESSORS: Final = 6
ITEMS: Final = 5
TOPIC: Final = "crash.events"


_FLOWS: Final = "SELECT flow_id, partition, state FROM flows"
_ENDED: Final = "SELECT run_id FROM history WHERE flow_id = :flow AND item_key = '' ORDER BY 1"
_LOGGED: Final = "SELECT execution_id FROM execution_log WHERE flow_id = :flow ORDER BY 1"
_ONCE: Final[dict[str, tuple[str, list[tuple[Any, ...]]]]] = {
    "triggers": (
        "SELECT phase, processor, runs FROM triggers WHERE flow_id = :flow ORDER BY 1, 2",
        [("each", "soon", 1), ("fan", "", 0), ("last", "", 1), ("middle", "", 1), ("raw", "", 2)],
    ),
    "first runs per processor and item": (
        """SELECT count(*) FROM (
            SELECT processor, item_key FROM runs WHERE flow_id = :flow AND parent_run_id IS NULL
            UNION ALL SELECT processor, item_key FROM history
                WHERE flow_id = :flow AND parent_run_id IS NULL) AS made
            GROUP BY processor, item_key""",
        [(1,)] * (PROCESSORS - 1 + ITEMS),
    ),
    "expansions": (
        "SELECT state, total, created, succeeded, due_at FROM expansions WHERE flow_id = :flow",
        [("SEALED", ITEMS, ITEMS, ITEMS, None)],
    ),
    "items left": ("SELECT position FROM expansion_items WHERE flow_id = :flow", []),
    "item completions": (
        "SELECT status FROM item_completions WHERE flow_id = :flow",
        [("success",)] * ITEMS,
    ),
    "completions": (
        "SELECT status FROM completions WHERE flow_id = :flow",
        [("success",)] * PROCESSORS,
    ),
    "journal": (
        """SELECT action, count(*) FROM journal WHERE kind = 'flow' AND subject = :flow
            AND action <> 'decided' GROUP BY 1 ORDER BY 1""",
        [("ended", 1), ("expanded", 1), ("opened", 1), ("phase_ended", 5), ("triggered", 5)],
    ),
    "phase log": (
        """SELECT phase, status FROM phase_completion_log WHERE flow_id = :flow ORDER BY 1""",
        [(phase, "complete") for phase in ("each", "fan", "last", "middle", "raw")],
    ),
    "live runs": ("SELECT run_id FROM runs WHERE flow_id = :flow", []),
    "messages": (
        """SELECT count(*) FROM messages WHERE ordering_key =
            (SELECT partition FROM flows WHERE flow_id = :flow)""",
        [(2,)],
    ),
    "runs made by actions": (
        """SELECT count(*) FROM (
            SELECT partition, processor FROM runs UNION ALL SELECT partition, processor FROM history
            ) AS made JOIN processors p ON p.processor = made.processor
            JOIN pipelines l ON l.pipeline = p.pipeline
            WHERE l.name = 'crash_single' AND made.partition =
                (SELECT partition FROM flows WHERE flow_id = :flow)""",
        [(1,)],
    ),
    "actions": (
        """SELECT a.kind, a.is_repeat FROM run_actions a JOIN history h ON h.run_id = a.run_id
            WHERE h.flow_id = :flow ORDER BY 1""",
        [("publish", False), ("publish", False), ("submit", False)],
    ),
    "sub-flows": (
        """SELECT w.state, w.generation FROM flows w JOIN pipelines p ON p.pipeline = w.pipeline
            WHERE p.name = 'crash_child' AND w.partition =
                (SELECT 'child of ' || partition FROM flows WHERE flow_id = :flow)""",
        [("COMPLETE", 1)],
    ),
    "waits": (
        """SELECT count(*) FROM sub_flows
            WHERE parent_flow_id = :flow AND resumed_at IS NOT NULL""",
        [(1,)],
    ),
    "waits left": ("SELECT run_id FROM sub_flows WHERE resumed_at IS NULL", []),
    "flow events left": ("SELECT phase FROM nudges WHERE flow_id = :flow", []),
    "probe leases left": ("SELECT holder FROM leases WHERE kind = 'look'", []),
}


class CrashTestFailed(AssertionError):
    """Something was lost, duplicated or stuck."""


def crash_pipeline() -> Pipeline:
    """Return the pipeline."""
    made = Pipeline(NAME, partition=text("day"), warehouse="w", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("left")(_acts)
    raw.processor("right", retry={"max_attempts": 4, "base_delay_minutes": 1})(_fails_once)
    middle = made.phase("middle", after=raw)
    middle.processor("mid", needs=[same_day("t.rows", expect=5)])(_work)
    made.phase("each", after=middle, on="each").processor("soon")(_work)
    made.phase("last", after=middle).processor("end")(_waits)
    made.phase("fan", after=raw).processor("one", each="SELECT id FROM t.items")(_work)
    return made


def other_pipelines() -> list[Pipeline]:
    """Return what the flow's processors submit to and trigger."""
    single = Pipeline("crash_single", partition=text("day"))
    single.processor("work")(_work)
    child = Pipeline("crash_child", partition=text("day"))
    first = child.phase("first")
    first.processor("one")(_work)
    child.phase("second", after=first).processor("two")(_work)
    return [single, child]


def _work(run: RunContext) -> None:
    """Do nothing: only the bookkeeping is under test."""


def _acts(run: RunContext) -> None:
    run.publish(TOPIC, "left", ordering_key=run.partition)
    run.submit("crash_single", partition=run.partition)


def _waits(run: RunContext) -> None:
    assert run.trigger("crash_child", f"child of {run.partition}", wait=True).is_complete


def _fails_once(run: RunContext) -> None:
    run.publish(TOPIC, "right", ordering_key=run.partition)
    if run.attempt == 1:
        raise ConnectionError("fails once")


def drive(store: Store, clock: VirtualClock, partition: str) -> None:
    """Drive the flow of a partition to its end, from whatever state it is in.

    Runs of items are created in parts of two, each with a commit of its own.
    """
    with patch.multiple(item_list, BATCH=2, FIRST_BATCH=1):
        _drive(store, clock, partition)


def _drive(store: Store, clock: VirtualClock, partition: str) -> None:
    pipelines = [crash_pipeline(), *other_pipelines()]
    opened_at = clock.now()
    client = Client(store, actor="driver")
    client.register(pipelines)
    client.topics.create(Topic(name=TOPIC))
    wanted = FlowRequest(pipeline=NAME, partition=partition, mode="tomorrow")
    flow_id = client.flows.trigger(wanted).flow.flow_id

    def probe(asked: ProbeRequest) -> Sequence[Observation]:
        there = 5 if clock.now() >= opened_at + 20 * MINUTE else 0
        return [
            Observation(key=d.key, looked_at=clock.now(), rows=there) for d in asked.dependencies
        ]

    def listed(_: ItemRequest) -> Sequence[int]:
        return range(ITEMS)

    orchestrator = Orchestrator(store, probe, query=listed, holder=f"driver-{opened_at}")
    options = WorkerOptions(
        name=f"driver-{opened_at}", concurrency=1, lease_us=2 * HOUR, heartbeat_us=HOUR
    )
    worker = WorkerCore(store, pipelines, options, clock=clock, jitter=lambda: 0.0)
    admitter, sweeper = Admitter(store), Sweeper(store, jitter=lambda: 0.0)
    worker.open()
    for _ in range(ROUNDS_MAX):
        swept = sweeper.run_once()
        stepped, admitted, done = orchestrator.run_once(), admitter.run_once(), worker.run_once()
        if client.flows.get(flow_id).flow.state != "OPEN" and not _is_live(client):
            orchestrator.run_once()  # process the last flow events as well
            worker.close()
            return
        if not (stepped.flows or admitted.runs or done.ended or swept.total):
            due = [at for at in (stepped.next_at, admitted.next_at) if at is not None]
            clock.advance_to(max(min(due, default=0), clock.now() + MINUTE))
    raise CrashTestFailed("the flow never ended")


def _is_live(client: Client) -> bool:
    """Whether a run of any pipeline has not ended; live runs are listed first."""
    found = client.runs.list(limit=1).items
    return bool(found) and found[0].finished_at is None


def check_result(store: Store, partition: str) -> None:
    """Raise Wrong unless everything about the flow of a partition exists exactly once."""
    flows = [row for row in _rows(store, _FLOWS, 0) if row[1] == partition]
    _same("flows", [row[2] for row in flows], ["COMPLETE"])
    flow_id = flows[0][0]
    for what, (query, wanted) in _ONCE.items():
        _same(what, _rows(store, query, flow_id), wanted)
    logged = _rows(store, _LOGGED, flow_id)
    _same("execution log", logged, _rows(store, _ENDED, flow_id))
    _decisions(store, flow_id, partition)


def _decisions(store: Store, flow_id: int, partition: str) -> None:
    """Check that every start has a recorded decision and every decision replays equal."""

    def read(tx: Any) -> list[Any]:
        number = tx.rows("pipeline_get", {"name": NAME})[0][0]
        wanted = DecisionFilter(pipeline=number, flow_id=flow_id, partition=partition, limit=200)
        return decision_list(tx, wanted)

    rows = store.read(read)
    for row in rows:
        recorded = loads(Decision, row.decision)
        _same(f"decision about {row.phase}", decide(loads(GateInput, row.input)), recorded)
    starts = [
        f"{r.phase}/{r.processor}" for r in rows if loads(Decision, r.decision).verdict.starts
    ]
    _same("decisions that start", sorted(starts), TRIGGERS)


def _rows(store: Store, text: str, flow_id: int) -> list[tuple[Any, ...]]:
    asked = text.replace(":flow", str(int(flow_id)))

    def body(tx: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in tx._connection.execute(asked).fetchall()]

    return store.read(body)


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise CrashTestFailed(f"{what}: found {found}, wanted {wanted}")
