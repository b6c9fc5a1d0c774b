"""Explanation of why a customer's work is blocked: a tree as in `flows.explain.why`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.flows.explain import commands
from penstock.flows.explain.explain import STATE_LABELS
from penstock.flows.explain.facts import PauseFact
from penstock.flows.explain.times import LocalClock, format_count, format_times
from penstock.flows.explain.why import Cause, Clears, joined, pause_cause

_WAITING = {
    "ready": "ready and not claimed yet",
    "later": "due later",
    "paused": "paused",
    "blocked": "behind another run of the same ordering key",
    "limited": "waiting for a limit",
    "gated": "held by a gate",
    "suspended": "suspended until a triggered flow ends",
}


class StoppedConfig(NamedTuple):
    """A config that is disabled or failing."""

    config_id: str
    pipeline: str
    is_active: bool
    inactive_reason: str | None
    failures: int


class StoppedPhase(NamedTuple):
    """A phase of an open flow that waits, is blocked or failed."""

    flow_id: str
    pipeline: str
    partition: str
    phase: str
    state: str
    since: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerFact:
    """A customer with its waiting and failed work; counts are bounded."""

    customer: str
    configs: int
    waiting: Mapping[str, int]
    """Pending runs by the reason why they wait."""
    running: int
    concurrency: int | None
    """Its maximum number of runs; None if it has none."""
    next_run_time: Micros | None
    pauses: tuple[PauseFact, ...]
    stopped: tuple[StoppedConfig, ...]
    phases: tuple[StoppedPhase, ...]
    dead_letters: int
    interventions: int


def why_customer(fact: CustomerFact, local: LocalClock) -> Cause:
    """Return what keeps a customer's runs, flows and configs from making progress."""
    children = [
        *map(pause_cause, fact.pauses),
        *map(_config, fact.stopped),
        *_runs(fact),
        *(_phase(one, local) for one in fact.phases),
        *_open(fact),
    ]
    pending = sum(fact.waiting.values())
    text = (
        f"{fact.customer}: {format_count(fact.configs, 'config')}, "
        f"{format_count(fact.running, 'run')} in progress, {pending:,} pending"
    )
    if not children:
        text += ": nothing waits"
    if fact.next_run_time is not None:
        children.append(
            Cause(
                kind="schedule",
                text=f"its next occurrence is at {local.at(fact.next_run_time)}",
                clears=Clears.TIME,
                earliest_at=max(fact.next_run_time, local.now),
            )
        )
    return joined(Cause(kind="customer", text=text, clears=Clears.NEVER, children=tuple(children)))


def _config(one: StoppedConfig) -> Cause:
    if not one.is_active:
        reason = f": {one.inactive_reason}" if one.inactive_reason else ""
        return Cause(
            kind="disabled",
            text=f"{one.config_id} ({one.pipeline}) is disabled{reason}",
            clears=Clears.PERSON,
            offer=commands.enable(one.config_id),
        )
    text = f"{one.config_id} ({one.pipeline}) failed {format_times(one.failures)} in a row"
    return Cause(kind="failures", text=text, offer=commands.why_config(one.config_id))


def _runs(fact: CustomerFact) -> Iterator[Cause]:
    for reason, count in fact.waiting.items():
        kind = {"later": "schedule", "paused": "pause", "limited": "limit"}.get(reason, "run")
        text = f"{format_count(count, 'run')} {_verb(count)} {_WAITING[reason]}"
        yield Cause(kind=kind, text=text, offer=commands.pending_runs(fact.customer))
    if fact.concurrency is not None and fact.running >= fact.concurrency:
        running = format_count(fact.running, "run")
        text = f"{running} {_verb(fact.running)} in progress; the maximum is {fact.concurrency:,}"
        yield Cause(kind="limit", text=text, offer=commands.set_concurrency(fact.customer))


def _verb(count: int) -> str:
    return "is" if count == 1 else "are"


def _phase(one: StoppedPhase, local: LocalClock) -> Cause:
    since = local.at(one.since)
    how = f"failed at {since}"
    if one.state != "FAILED":
        how = f"has been {STATE_LABELS[one.state]} since {since}"
    text = f"{one.pipeline} {one.partition}: {one.phase} {how}"
    return Cause(kind="phase", text=text, since=one.since, offer=commands.why_of(one.flow_id))


def _open(fact: CustomerFact) -> Iterator[Cause]:
    if fact.dead_letters:
        count = fact.dead_letters
        text = f"{format_count(count, 'dead letter')} {_verb(count)} open"
        offer = commands.open_dead_letters(fact.customer)
        yield Cause(kind="dead_letter", text=text, clears=Clears.PERSON, offer=offer)
    if fact.interventions:
        needs = "needs" if fact.interventions == 1 else "need"
        text = f"{format_count(fact.interventions, 'intervention')} {needs} a decision"
        offer = commands.open_interventions(fact.customer)
        yield Cause(kind="intervention", text=text, clears=Clears.PERSON, offer=offer)
