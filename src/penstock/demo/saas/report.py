"""Summary of the saas demo: all numbers come from the store, and all claims are checked there."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.assembly.process import RunFilter, WorkerOptions
from penstock.cli import output
from penstock.cli.rows import collect
from penstock.core.clock import HOUR, to_datetime
from penstock.core.ids import decode
from penstock.demo.claims import Claim, claims_text, program
from penstock.demo.saas.scenario import CONCURRENCY, FLOOD_AT, OUTAGE_HOURS, WORKERS
from penstock.runs.client.listing import run_page

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.db.store import Tx
    from penstock.demo.saas.scenario import ScenarioState
    from penstock.runs.rows import RunRow
    from penstock.runs.store.lists.pages import RunPosition, RunsPart
    from penstock.schedules.records import StoredConfig

PAGE = 5_000
EVERY = 1_000_000

RECOVERED = ("STALE_EXECUTION", "TIMEOUT")
"""Ways in which runs of a killed worker end: its session expires, or they time out first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Actions of the demo, to compare with the contents of the store."""

    scene: ScenarioState
    scheduled: int
    refused: int
    database: str
    database_url: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The summary of a demo: its claims, the configs left disabled and the facts behind them."""

    head: str
    claims: list[Claim]
    disabled: list[StoredConfig]
    facts: Facts

    @property
    def is_true(self) -> bool:
        """True if every claim holds."""
        return all(claim.is_true for claim in self.claims)

    def record(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        return {
            "is_true": self.is_true,
            "seconds": round(self.facts.seconds, 1),
            "database": self.facts.database,
            "claims": [claim.record() for claim in self.claims],
            "disabled_configs": [c.config_id for c in self.disabled],
        }

    def text(self) -> str:
        """Return the summary as text."""
        return claims_text(self.head, self.claims, self._next_steps())

    def _next_steps(self) -> list[str]:
        call = f"{program()} --database-url {self.facts.database_url}"
        steps = ["status", "dlq list", "alerts list", "doctor"]
        if self.disabled:
            steps.insert(3, f"configs enable {self.disabled[0].config_id}")
        return [
            f"The database is kept at {self.facts.database_url}. Explore it:",
            *(f"  {call} {step}" for step in steps),
            f"  {call} up --pipelines penstock.demo.saas.pipelines",
        ]


def check_claims(client: Client, facts: Facts) -> Report:
    """Read the whole day from the store and check every claim."""
    runs = _all_runs(client)
    configs = _all_configs(client)
    scene = facts.scene
    zones = {c.timezone for c in configs}
    head = (
        f"A simulated day of {len(scene.names):,} customers in {facts.seconds:.0f} s: "
        f"{output.plural(len(configs), 'config')} in {len(zones)} time zones, {WORKERS} workers "
        f"with a concurrency of {CONCURRENCY}, {output.plural(len(runs), 'attempt')}."
    )
    claims = [
        _nothing_lost(runs, facts),
        _nothing_twice(runs),
        _throttled(runs),
        _crashed(runs, facts),
        _flooded(runs, facts),
        _outage(client, runs, configs, scene),
        _credentials(client, runs, configs),
        _journal(client),
    ]
    return Report(head, claims, [c for c in configs if not c.is_active], facts)


def _all_runs(client: Client) -> list[RunRow]:
    """Return every run, finished or not, page by page."""
    found: list[RunRow] = []
    part = client.store.read(_page)
    found += part.rows
    while part.following is not None:
        part = client.store.read(partial(_page, position=part.following))
        found += part.rows
    return found


def _page(tx: Tx, position: RunPosition | None = None) -> RunsPart:
    return run_page(tx, RunFilter(limit=PAGE), position)


def _all_configs(client: Client) -> list[StoredConfig]:
    return collect(lambda n, at: client.configs.list(limit=n, cursor=at), EVERY).items


def _nothing_lost(runs: list[RunRow], facts: Facts) -> Claim:
    """Check that every requested run exists and has ended."""
    ends = Counter(_end(chain) for chain in _chains(runs).values())
    asked = facts.scheduled + facts.scene.accepted
    found = sum(ends.values())
    text = (
        f"{asked:,} runs were requested ({facts.scheduled:,} by schedules, "
        f"{facts.scene.accepted:,} manually): {ends['completed']:,} completed, {ends['dead']:,} "
        f"are dead letters, {ends['cancelled']:,} were cancelled, {ends['live']:,} are "
        f"unfinished, {asked - found:,} are missing."
    )
    numbers = {"asked": asked, "found": found, **ends}
    return Claim("No run was lost.", text, asked == found and not ends["live"], numbers)


def _nothing_twice(runs: list[RunRow]) -> Claim:
    occurrences = Counter(
        (r.config_id, r.occurrence_time, r.processor, r.attempt)
        for r in runs
        if r.config_id is not None
    )
    twice = sum(1 for n in occurrences.values() if n > 1)
    chains = _chains(runs)
    again = sum(1 for c in chains.values() if sum(r.state == "COMPLETED" for r in c) > 1)
    tokens = Counter(r.token for r in runs if r.claimed_at is not None)
    shared = sum(1 for n in tokens.values() if n > 1)
    first = sum(1 for r in runs if r.config_id is not None and r.attempt == 1)
    text = (
        f"{first:,} occurrences started {first:,} runs, {twice} occurrences started twice; {again} "
        f"runs completed more than once; {shared} fencing tokens were used by two runs."
    )
    numbers = {"slots": first, "twice": twice, "completed_again": again, "shared_tokens": shared}
    return Claim("Nothing happened twice.", text, not twice and not again and not shared, numbers)


def _throttled(runs: list[RunRow]) -> Claim:
    """Check that runs that hit a rate limit were retried and ended."""
    ends = _ends_of(runs, "RATE_LIMIT_EXCEEDED")
    network = _ends_of(runs, "TRANSIENT_NETWORK")
    text = (
        f"{sum(ends.values()):,} runs got 429 Too Many Requests and were retried after the "
        f"requested delay: {ends['completed']:,} completed, {ends['dead']:,} failed. Of "
        f"{sum(network.values()):,} runs whose connection broke, {network['completed']:,} "
        "completed on a later attempt."
    )
    is_true = sum(ends.values()) > 0 and not ends["live"]
    return Claim("Rate limits and broken connections were retried.", text, is_true,
                 {"rate_limited": dict(ends), "network": dict(network)})  # fmt: skip


def _crashed(runs: list[RunRow], facts: Facts) -> Claim:
    stale = [r for r in runs if r.error_type in RECOVERED]
    holders = sorted({r.claimed_by for r in stale if r.claimed_by})
    ends = _ends_of(runs, *RECOVERED)
    lease = output.format_span(facts.scene.stage.lease_us)
    usual = output.format_span(WorkerOptions().lease_us)
    found = max(((r.finished_at or 0) - (r.started_at or 0) for r in stale), default=0)
    text = (
        f"{' and '.join(holders) or 'The worker'} was killed while executing {len(stale)} runs. "
        f"They were recovered at most {output.format_span(found)} after their start "
        f"(a worker's lease is {lease} here, because simulated time advances in long steps; "
        f"{usual} by default) and ran on other workers: {ends['completed']} completed, "
        f"{ends['dead']} failed later for other reasons. {facts.refused} late results of the "
        "killed worker were refused because their fencing tokens were stale."
    )
    is_true = bool(stale) and ends["completed"] + ends["dead"] == len(stale)
    numbers = {"rescued": len(stale), "refused": facts.refused, **ends}
    return Claim("A killed worker delayed runs but lost none.", text, is_true, numbers)


def _flooded(runs: list[RunRow], facts: Facts) -> Claim:
    """Check that other customers' runs did not wait long while the flood was processed."""
    scene = facts.scene
    ids = {decode("run", run_id) for run_id in scene.flood_ids}
    flood = [r for r in runs if r.run_id in ids and r.started_at is not None]
    begin = scene.start + FLOOD_AT
    until = max((r.started_at or 0 for r in flood), default=begin)
    others = [r for r in runs if r.customer_id != scene.flooder and r.started_at is not None]
    during = sorted(_wait(r) for r in others if begin <= r.scheduled_time <= until)
    usual = sorted(_wait(r) for r in others if r.scheduled_time < begin)
    own = max((_wait(r) for r in flood), default=0)
    slowest = during[-1] if during else 0
    hurt = {r.customer_id for r in others
            if begin <= r.scheduled_time <= until and _wait(r) > own // 2}  # fmt: skip
    text = (
        f"{scene.flooder} submitted {len(ids):,} runs at once; processing them took "
        f"{output.format_span(until - begin)} and its last run waited "
        f"{output.format_span(own)}. Meanwhile the "
        f"median wait of the other customers' {len(during):,} runs was {_median(during)} (before: "
        f"{_median(usual)}), the longest {output.format_span(slowest)}. {len(hurt)} "
        "other customers waited more than half as long as the sender."
    )
    numbers = {
        "flood": len(ids),
        "flood_wait_max_s": own // 1_000_000,
        "others": len(during),
        "others_wait_median_s": int(statistics.median(during or [0])) // 1_000_000,
        "others_wait_max_s": slowest // 1_000_000,
        "hurt": len(hurt),
    }
    return Claim("A flood delayed only its sender.", text, bool(flood) and not hurt, numbers)


def _outage(
    client: Client, runs: list[RunRow], configs: list[StoredConfig], scene: ScenarioState
) -> Claim:
    begin = scene.start + scene.outage_after
    end = begin + OUTAGE_HOURS * HOUR
    missed = 0
    for config in configs:
        for entry in client.configs.occurrences(config.config_id, limit=100).items:
            if entry.outcome == "skipped_missed" and entry.first >= to_datetime(begin - HOUR):
                missed += entry.occurrences
    first = [r for r in runs if r.attempt == 1 and r.config_id is not None]
    caught = [r for r in first if begin < r.occurrence_time <= end <= r.created_at]
    spread = max((r.scheduled_time for r in caught), default=end) - end
    late = [r for r in runs if r.sla_met is False]
    text = (
        f"No scheduler ran for {OUTAGE_HOURS} hours. Afterwards {len(caught):,} configs ran their "
        f"latest missed occurrence, spread over {output.format_span(spread)} instead of "
        "all at once; "
        f"{missed:,} older occurrences were skipped and are in the ledger with the reason. "
        f"{len(late):,} runs of the day started later than their SLA allows and are marked."
    )
    numbers = {"caught_up": len(caught), "missed": missed, "sla_breaches": len(late)}
    return Claim("Schedules caught up after a scheduler outage.", text, bool(caught), numbers)


def _credentials(client: Client, runs: list[RunRow], configs: list[StoredConfig]) -> Claim:
    """Check that permanent errors are not retried, and that failing configs are disabled."""
    dead = [r for r in runs if r.is_dead and r.error_type == "AUTHENTICATION_FAILED"]
    in_vain = {r.run_id for r in dead} & {r.parent_run_id for r in runs}
    dead_letters = client.dead_letters.list(limit=PAGE).items
    disabled = [c for c in configs if not c.is_active]
    restored = {r.customer_id for r in dead} - {c.customer for c in disabled}
    alerts = client.alerts.list(limit=PAGE).items
    warned = sum(1 for a in alerts if a.rule == "config_failing")
    high = sum(1 for a in alerts if a.rule == "config_disabled")
    names = ", ".join(f"{c.customer}'s {c.pipeline}" for c in disabled)
    text = (
        f"{len(dead)} runs of {len({r.customer_id for r in dead})} customers failed with revoked "
        f"credentials and became dead letters without retries. {warned} alerts were raised after 3 "
        f"failures in a row, and {high} configs were disabled after 5, with another alert. "
        f"{output.plural(len(restored), 'customer')} got new credentials and was enabled again; "
        f"still disabled: {names or 'none'}."
    )
    is_true = bool(dead) and high >= 1 and not in_vain and bool(dead_letters)
    numbers = {"dead": len(dead), "alerts_medium": warned, "alerts_high": high,
               "disabled": len(disabled)}  # fmt: skip
    return Claim("Permanent errors wait for an operator.", text, is_true, numbers)


def _journal(client: Client) -> Claim:
    found = client.views.verify_journal()
    text = (
        f"{found.entries:,} journal entries in {found.blocks:,} sealed blocks; recomputing the "
        f"hashes shows: {found.problem or 'none was changed'}."
    )
    is_proved = found.problem is None and found.entries > 0
    numbers = {"entries": found.entries, "blocks": found.blocks}
    return Claim("Everything is on record.", text, is_proved, numbers)


def _chains(runs: list[RunRow]) -> dict[int, list[RunRow]]:
    """Group runs into chains of attempts, by the id of the first attempt."""
    chains: dict[int, list[RunRow]] = defaultdict(list)
    for run in runs:
        chains[run.root_run_id or run.run_id].append(run)
    return chains


def _end(chain: list[RunRow]) -> str:
    last = max(chain, key=lambda run: run.run_id)
    if last.state == "COMPLETED":
        return "completed"
    if last.state == "CANCELLED":
        return "cancelled"
    return "dead" if last.is_dead else "live"


def _ends_of(runs: list[RunRow], *error_types: str) -> Counter[str]:
    """Count the outcomes of chains in which an attempt failed with one of these error types."""
    chains = _chains(runs)
    met = {r.root_run_id or r.run_id for r in runs if r.error_type in error_types}
    return Counter(_end(chains[root]) for root in met)


def _wait(run: RunRow) -> int:
    return max(0, (run.started_at or run.scheduled_time) - run.scheduled_time)


def _median(waits: list[int]) -> str:
    return output.format_span(int(statistics.median(waits))) if waits else "-"
