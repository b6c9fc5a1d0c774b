"""Summary of the nba demo: every claim is checked against the store and the warehouse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.assembly.process import RunFilter
from penstock.cli.output import plural
from penstock.core.clock import MINUTE, from_datetime
from penstock.core.stored_json import loads
from penstock.dead_letters.records import ReplayRequest
from penstock.demo.claims import Claim, claims_text, program
from penstock.demo.nba import day
from penstock.demo.nba.answers import local_time
from penstock.demo.nba.app_feed import ATTEMPTS, ERROR, FEED, lines_published
from penstock.flows.gates.gate import decide
from penstock.flows.gates.rows import DecisionFilter
from penstock.flows.gates.store.gates import decision_list
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.flows.rows import FlowFilter
from penstock.flows.store.flows import flow_list
from penstock.runs.client.listing import run_page
from penstock.runs.states import RunState

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.db.store import Tx
    from penstock.demo.nba.day import ScenarioState
    from penstock.flows.gates.rows import DecisionRow
    from penstock.flows.records import FlowDetail
    from penstock.runs.rows import RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The summary of a demo: its claims, and the answers to the operator's questions."""

    head: str
    claims: list[Claim]
    database_url: str
    folder: str
    seconds: float
    answers: list[list[str]]

    @property
    def is_true(self) -> bool:
        """True if every claim holds."""
        return all(claim.is_true for claim in self.claims)

    def record(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        return {
            "is_true": self.is_true,
            "seconds": round(self.seconds, 1),
            "database": self.database_url,
            "folder": self.folder,
            "claims": [claim.record() for claim in self.claims],
            "answers": self.answers,
        }

    def text(self) -> str:
        """Return the summary as text."""
        call = f"{program()} --database-url {self.database_url}"
        steps = (
            f"explain nba {day.TODAY}",
            f"explain nba {day.TODAY} --generation 1",
            "flows list",
            "dlq list",
            f"gate history nba {day.PLAYED} scrape",
            "pipelines show nba",
            "doctor",
        )
        after = [
            f"All data is kept in {self.folder}. Explore it:",
            *(f"  {call} {step}" for step in steps),
            f"  {program()} demo saas     the other demo: a day of 1,000 customers",
        ]
        return claims_text(self.head, self.claims, after)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRecord:
    """All flows and runs of the day, read from the store."""

    flows: Sequence[FlowDetail]
    runs: Sequence[RunRow]

    def of(self, mode: str) -> list[FlowDetail]:
        """Return the flows of a mode, oldest generation first."""
        return [detail for detail in self.flows if detail.flow.mode == mode]


def check_claims(
    client: Client, scene: ScenarioState, *, url: str, folder: str, seconds: float
) -> Report:
    """Read the day from the store and check every claim."""
    flows = [
        client.flows.get(flow.flow_id) for flow in reversed(client.flows.list(limit=100).items)
    ]
    wanted = [RunFilter(state=state.value, limit=5_000) for state in RunState]
    runs = client.store.read(lambda tx: [run for one in wanted for run in run_page(tx, one).rows])
    past = DayRecord(flows=flows, runs=runs)
    decisions = sum(len(detail.decisions) for detail in flows)
    head = (
        f"A day of basketball in {seconds:.0f} s: {plural(len(flows), 'flow')}, "
        f"{plural(decisions, 'gate decision')}, {plural(len(runs), 'run')} of real SQL over DuckDB."
    )
    claims = [
        _waited(past, scene),
        _recovered(past),
        _degraded(past, scene),
        _healed(past, scene),
        _kept(client),
        _ahead(past),
        _once(past),
        _replayed(client),
        _journal(client),
    ]
    answers = [list(answer.lines()) for answer in scene.answers]
    return Report(head=head, claims=claims, database_url=url, folder=folder, seconds=seconds,
                  answers=answers)  # fmt: skip


def _waited(past: DayRecord, scene: ScenarioState) -> Claim:
    """Check that the first gate of the night waited for the late source and started soon after."""
    flows = past.of("overnight")
    gate = [d for f in flows for d in reversed(f.decisions) if d.phase == "scrape"]
    waits = [d for d in gate if d.verdict == "WAIT"]
    named = [d for d in waits if d.missing == [f"feed.{day.PLAYS}"]]
    starts = [t for f in flows for t in f.triggers if t.phase == "scrape"]
    soon = bool(starts) and 0 <= from_datetime(starts[0].at) - scene.plays_at <= 11 * MINUTE
    state = flows[-1].flow.state if flows else "?"
    at = local_time(starts[0].at) if starts else "?"
    text = (
        f"{day.PLAYS} was missing at 23:00. The gate decided WAIT {plural(len(waits), 'time')} and "
        f"named the source each time. It was published at {local_time(scene.plays_at)}, the phase "
        f"started at {at} without intervention, and the night ended {state.lower()}."
    )
    is_true = bool(waits) and named == waits and soon and state == "COMPLETE" and len(starts) == 1
    return Claim("A gate waited for a late source, and started when it came.", text, is_true,
                 {"waits": len(waits), "state": state})  # fmt: skip


def _recovered(past: DayRecord) -> Claim:
    attempts = sorted((r for r in past.runs if r.processor == day.BREAKS), key=lambda r: r.run_id)
    ends = [(r.attempt, r.state, r.error_type) for r in attempts]
    is_true = ends == [(1, "FAILED", "TRANSIENT_NETWORK"), (2, "COMPLETED", None)]
    gap = attempts[1].started_at or 0 if len(attempts) > 1 else 0
    text = (
        f"{day.BREAKS} lost its connection; {plural(len(attempts), 'attempt')}, the last one at "
        f"{local_time(gap)}: {attempts[-1].state.lower() if attempts else 'none'}. Its "
        "phase waited for "
        "the retry instead of ending without it."
    )
    return Claim(
        "A failed processor was retried automatically.", text, is_true, {"attempts": len(attempts)}
    )


def _degraded(past: DayRecord, scene: ScenarioState) -> Claim:
    """Check that the first picks had no lines, and that every later phase recorded the gap."""
    flows = past.of("same_day")
    first = flows[0] if flows else None
    missing = {row.phase: row.missing for row in first.phases} if first else {}
    knew = [p for p in ("raw", "analytics", "precompute", "predict", "publish")
            if f"{day.LINES}_scraper" in missing.get(p, ())]  # fmt: skip
    ended = first.flow.ended_at if first else None
    is_true = (
        first is not None
        and first.flow.state == "DEGRADED"
        and len(knew) == 5
        and scene.lines_before == 0
        and ended is not None
        and from_datetime(ended) < scene.lines_at
    )
    text = (
        f"{day.LINES} was still missing at its straggler deadline. The picks were published at "
        f"{local_time(ended) if ended else '?'}, {scene.lines_before} of 20 with a line, and "
        f"{', '.join(knew)} recorded what was missing."
    )
    return Claim("A phase ran degraded, and all later phases recorded it.", text, is_true,
                 {"knew": knew, "lines": scene.lines_before})  # fmt: skip


def _healed(past: DayRecord, scene: ScenarioState) -> Claim:
    flows = past.of("same_day")
    again = flows[-1].flow if len(flows) > 1 else None
    lines = lines_published(str(day.TODAY))
    is_true = (
        len(flows) == 2
        and again is not None
        and (again.state, again.trigger_source) == ("COMPLETE", "late_data")
        and lines == 20
    )
    at = local_time(again.ended_at) if again and again.ended_at else "?"
    text = (
        f"The lines were published at {local_time(scene.lines_at)}; the next attempt of "
        "their scraper "
        f"found them and started generation {again.generation if again else '?'} at raw. At {at} "
        f"it was {again.state.lower() if again else '?'}: {lines} of 20 picks have a line."
    )
    return Claim(
        "Late data repaired the result.", text, is_true, {"generations": len(flows), "lines": lines}
    )


def _kept(client: Client) -> Claim:
    """Check that the message the app refused is a complete dead letter that can be replayed."""
    kept = client.dead_letters.list(subscription=FEED).items
    request = ReplayRequest(subscription=FEED, is_dry_run=True)
    tried = client.dead_letters.replay_matching(request)
    whole = [one for one in kept if client.dead_letters.get(one.dead_letter_id).message]
    ends = [(one.error_type, one.attempts) for one in kept]
    is_true = ends == [(ERROR, ATTEMPTS)] and len(whole) == len(tried.replayed) == 1
    text = (
        f"The app refused the message about the first picks {plural(ATTEMPTS, 'time')}. "
        f"{plural(len(whole), 'dead letter')} with its message is open, and "
        f"{len(tried.replayed)} can be replayed now that the picks have lines."
    )
    return Claim("A message that failed was kept.", text, is_true, {"dead_letters": len(kept)})


def _ahead(past: DayRecord) -> Claim:
    flows = past.of("tomorrow")
    states = [f.flow.state for f in flows]
    partitions = [f.flow.partition for f in flows]
    text = f"The 17:00 occurrence processed {', '.join(partitions)}: {', '.join(states)}."
    is_true = states == ["COMPLETE"] and partitions == [str(day.TOMORROW)]
    return Claim("The evening flow prepared the next day.", text, is_true, {"states": states})


def _once(past: DayRecord) -> Claim:
    """Check that every phase started at most once, each with a decision that allowed it."""
    triggers = Counter((f.flow.flow_id, t.phase) for f in past.flows for t in f.triggers)
    first = Counter(
        (r.flow_id, r.phase, r.processor, r.item_key) for r in past.runs if r.attempt == 1
    )
    allowed = {(d.flow_id, d.phase) for f in past.flows for d in f.decisions if d.verdict != "WAIT"}
    twice = sum(n > 1 for n in (*triggers.values(), *first.values()))
    unjustified = [key for key in triggers if key not in allowed]
    text = (
        f"{plural(len(triggers), 'phase')} started, each by one recorded decision, with "
        f"{plural(len(first), 'processor')} in total; {twice} started twice, {len(unjustified)} "
        "without a recorded decision."
    )
    is_true = bool(triggers) and not twice and not unjustified
    return Claim("Everything started exactly once.", text, is_true, {"twice": twice})


def _replayed(client: Client) -> Claim:
    rows = client.store.read(_decisions)
    other = [
        row for row in rows if decide(loads(GateInput, row.input)) != loads(Decision, row.decision)
    ]
    text = (
        f"{len(rows)} decisions were recomputed from their recorded inputs: {len(other)} were "
        "different."
    )
    is_true = bool(rows) and not other
    return Claim("Every decision can be explained and replayed.", text, is_true,
                 {"decisions": len(rows), "other": len(other)})  # fmt: skip


def _decisions(tx: Tx) -> list[DecisionRow]:
    return [
        row
        for flow in flow_list(tx, FlowFilter(limit=100))
        for row in decision_list(
            tx, DecisionFilter(pipeline=flow.pipeline_key, flow_id=flow.flow_id, limit=200)
        )
    ]


def _journal(client: Client) -> Claim:
    found = client.views.verify_journal()
    text = (
        f"{found.entries:,} journal entries in {found.blocks:,} sealed blocks; recomputing the "
        f"hashes shows: {found.problem or 'none was changed'}."
    )
    is_proved = found.problem is None and found.entries > 0
    return Claim("Everything is on record.", text, is_proved, {"entries": found.entries})
