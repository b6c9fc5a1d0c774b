"""Progress of the change of an entity, phase by phase, in the flows that reported it.

Pure rules over facts that `flows.explain.store.entities` loads. A phase has processed a change if
one of its processors also reported the entity as changed, or succeeded after receiving it; a
processor that is not incremental always receives everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.entities.report import ID_CHARS_MAX, KIND
from penstock.entities.rows import EntityChange
from penstock.flows.cascade import FlowState
from penstock.flows.phases import PhaseState

CHANGED: Final = "changed"
PROCESSED: Final = "processed"
REACHED: Final = (CHANGED, PROCESSED)


class EntityFlowFact(NamedTuple):
    """A flow that reported a change of an entity; without a state if it is no longer stored."""

    flow_id: int | None
    pipeline: str
    partition: str | None
    mode: str | None
    generation: int | None
    state: str | None
    changes: Sequence[EntityChange]
    phases: Sequence[EntityPhaseFact]


class EntityPhaseFact(NamedTuple):
    """A phase of such a flow."""

    name: str
    after: tuple[str, ...]
    state: str
    is_last: bool
    done: tuple[str, ...]
    """Processors that succeeded."""
    received: Mapping[str, str | None]
    """Incremental processors that received the change, with the reason if it was everything."""
    incremental: frozenset[str]
    caught_up: Mapping[str, int]
    """Incremental processors that received it in a later flow, with that flow."""


class PhaseTrail(NamedTuple):
    """How a phase handled a change."""

    phase: str
    state: str
    outcome: str
    processors: tuple[str, ...]
    text: str


def parse_entity(text: str) -> tuple[str, str]:
    """Return kind and id of `players:1630567`."""
    kind, colon, name = text.partition(":")
    if not colon or not KIND.fullmatch(kind) or not 0 < len(name) <= ID_CHARS_MAX:
        raise InvalidInput("entity", "kind and id such as players:1630567", text)
    return kind, name


def phase_trails(fact: EntityFlowFact) -> list[PhaseTrail]:
    """Return how each phase handled the change, from the first phase that reported it."""
    found: dict[str, PhaseTrail] = {}
    for phase in fact.phases:
        own = tuple(dict.fromkeys(c.processor for c in fact.changes if c.phase == phase.name))
        before = [found[name] for name in phase.after if name in found]
        if own:
            text = f"changed by {', '.join(own)}"
            found[phase.name] = PhaseTrail(phase.name, phase.state, CHANGED, own, text)
        elif before:
            found[phase.name] = _trail(phase, [one.phase for one in before], fact.state)
    return list(found.values())


def _trail(phase: EntityPhaseFact, before: Sequence[str], state: str | None) -> PhaseTrail:
    done = [name for name in phase.done if name not in phase.incremental or name in phase.received]
    late = {name: flow for name, flow in phase.caught_up.items() if name not in done}
    if done or late:
        texts = [_processed(name, phase) for name in done]
        texts += [f"{name} in {encode('flow', flow)}" for name, flow in late.items()]
        names = (*done, *late)
        text = f"processed by {', '.join(texts)}"
        return PhaseTrail(phase.name, phase.state, PROCESSED, names, text)
    if phase.state in (PhaseState.COMPLETE, PhaseState.DEGRADED):
        text = f"complete, but {' and '.join(before)} did not report it to {phase.name}"
        return PhaseTrail(phase.name, phase.state, "not_received", (), text)
    skipped = "is skipped in this mode"
    if state in (FlowState.CANCELLED, FlowState.FAILED):
        skipped = f"did not run: the flow ended {state}"
    words = {
        PhaseState.IN_PROGRESS: ("in_progress", "has started and not ended"),
        PhaseState.FAILED: ("failed", "failed"),
        PhaseState.SKIPPED: ("skipped", skipped),
    }
    outcome, text = words.get(PhaseState(phase.state), ("waiting", "has not started"))
    return PhaseTrail(phase.name, phase.state, outcome, (), text)


def _processed(name: str, phase: EntityPhaseFact) -> str:
    if name in phase.incremental and phase.received.get(name) is None:
        return f"{name} (incremental)"
    return name


def reached_last(fact: EntityFlowFact, trails: Sequence[PhaseTrail]) -> bool | None:
    """Whether the change reached every last phase of the flow; None if that is not known."""
    if fact.state is None:
        return None
    outcomes = {one.phase: one.outcome for one in trails}
    last = [phase.name for phase in fact.phases if phase.is_last and phase.name in outcomes]
    return bool(last) and all(outcomes[name] in REACHED for name in last)


def summary(fact: EntityFlowFact, trails: Sequence[PhaseTrail], entity: str) -> str:
    """Return the progress of the change as a sentence."""
    origin = trails[0].phase if trails else fact.changes[-1].phase
    named = sorted({f"{c.phase}.{c.processor}" for c in fact.changes if c.phase == origin})
    start = f"{entity} was changed by {' and '.join(named)}"
    if fact.state is None:
        return f"{start}; its flow is no longer stored."
    stopped = [one for one in trails if one.outcome not in REACHED]
    if not stopped:
        known = {one.phase for one in trails}
        last = [phase.name for phase in fact.phases if phase.is_last and phase.name in known]
        end = f" and reached {' and '.join(last)}, the last phase" if last else ""
        return f"{start}{end}."
    one = stopped[0]
    got = [trail.phase for trail in trails if trail.outcome in REACHED][-1]
    return f"{start} and got as far as {got}: {one.phase} {one.text}."
