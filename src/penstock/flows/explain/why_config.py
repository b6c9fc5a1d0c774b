"""Explanation of why a config starts no runs: a tree of causes as in `flows.explain.why`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.flows.explain import commands
from penstock.flows.explain.facts import PauseFact, RunFact
from penstock.flows.explain.times import LocalClock, format_times
from penstock.flows.explain.why import Cause, Clears, joined, pause_cause, scheduler_cause, why_run
from penstock.schedules.cadence import Overlap
from penstock.schedules.liveness import NO_SCHEDULER

_MISSED = {
    "skipped_overlap": "an earlier run had not ended",
    "paused": "it was paused",
    "skipped_missed": "no scheduler was running, or the catch-up policy skipped it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTopicFact:
    """The topic of an event-driven config. is_paused: its bound subscription is paused."""

    name: str
    exists: bool
    is_paused: bool
    filter: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedFact:
    """The last occurrences that did not start."""

    at: Micros
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFact:
    """A config with the facts that keep it from starting runs."""

    config_id: str
    pipeline: str
    customer: str
    created_at: Micros
    is_active: bool
    inactive_reason: str | None
    overlap: str
    next_run_time: Micros | None
    consecutive_failures: int
    topic: EventTopicFact | None
    """None unless the config is event-driven."""
    pauses: tuple[PauseFact, ...]
    live: tuple[RunFact, ...]
    lacks_scheduler: bool
    """Whether its next occurrence is due and no scheduler is alive to start it."""
    open_flow_id: str | None
    missed: MissedFact | None
    common_cause: tuple[str, Micros] | None
    """Text and time of the open alert about a common cause of failures."""


def why_config(config: ConfigFact, local: LocalClock) -> Cause:
    """Return why a config has not started a run, and what will start the next one."""
    name = f"{config.config_id} ({config.pipeline} of {config.customer})"
    children = list(_stops(config))
    if config.topic is not None:
        children += _event(config.topic)
    elif config.is_active:
        children.append(_occurrence(config, local))
    children += _overlap(config, local)
    children += _failures(config)
    if config.missed is not None:
        reason = _MISSED.get(config.missed.outcome, config.missed.outcome)
        text = f"the occurrence of {local.at(config.missed.at)} did not start: {reason}"
        offer = commands.ledger(config.config_id)
        children.append(
            Cause(
                kind="missed",
                text=text,
                clears=Clears.NEVER,
                since=config.missed.at,
                offer=offer,
            )
        )
    return joined(
        Cause(
            kind="config",
            text=f"{name} is {'active' if config.is_active else 'disabled'}",
            since=config.created_at,
            children=tuple(children),
        )
    )


def _stops(config: ConfigFact) -> Iterator[Cause]:
    if not config.is_active:
        reason = f": {config.inactive_reason}" if config.inactive_reason else ""
        yield Cause(
            kind="disabled",
            text=f"it is disabled{reason}",
            clears=Clears.PERSON,
            offer=commands.enable(config.config_id),
        )
    yield from map(pause_cause, config.pauses)


def _event(topic: EventTopicFact) -> Iterator[Cause]:
    if not topic.exists:
        yield Cause(
            kind="topic",
            text=f"its topic {topic.name} does not exist",
            clears=Clears.PERSON,
            offer=commands.create_topic(topic.name),
        )
        return
    if topic.is_paused:
        yield Cause(
            kind="pause",
            text=f"the subscription {topic.name}.configs is paused",
            clears=Clears.PERSON,
        )
    which = f" that matches {topic.filter}" if topic.filter else ""
    yield Cause(kind="event", text=f"it starts with the next message on {topic.name}{which}")


def _occurrence(config: ConfigFact, local: LocalClock) -> Cause:
    at = config.next_run_time
    if at is None:
        text = "its schedule has no next occurrence"
        return Cause(kind="schedule", text=text, clears=Clears.PERSON)
    if config.lacks_scheduler:
        text = f"the occurrence of {local.at(at)} is due"
        children = (scheduler_cause(f"{NO_SCHEDULER} to start it"),)
        return joined(Cause(kind="schedule", text=text, since=at, children=children))
    if at > local.now:
        text = f"its next occurrence is at {local.at(at)}"
    else:
        text = f"the occurrence of {local.at(at)} is due, but no scheduler has started it yet"
    return Cause(kind="schedule", text=text, clears=Clears.TIME, earliest_at=max(at, local.now))


def _overlap(config: ConfigFact, local: LocalClock) -> Iterator[Cause]:
    if config.overlap == Overlap.ALLOW:
        return
    effect = "are skipped" if config.overlap == Overlap.SKIP else "wait"
    rule = f"overlap is {config.overlap}: occurrences {effect} until then"
    if config.open_flow_id is not None:
        text = f"{config.open_flow_id} has not ended, and {rule}"
        offer = commands.why_of(config.open_flow_id)
        yield Cause(kind="overlap", text=text, offer=offer)
        return
    for run in config.live[:1]:
        text = f"{run.run_id} has not ended, and {rule}"
        yield joined(Cause(kind="overlap", text=text, children=(why_run(run, local),)))


def _failures(config: ConfigFact) -> Iterator[Cause]:
    if config.common_cause is not None:
        text, since = config.common_cause
        yield Cause(kind="common_cause", text=text, clears=Clears.PERSON, since=since)
    elif config.is_active and config.consecutive_failures:
        times = format_times(config.consecutive_failures)
        text = f"it failed {times} in a row; five failures disable it"
        yield Cause(kind="failures", text=text)
