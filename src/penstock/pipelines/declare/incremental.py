"""Incremental processors of a definition, and the earlier processors that report changes to them.

Works on the JSON of a definition, like `pipelines.declare.validation`. The processors before an
incremental one are those of all earlier phases, in any mode: changes made in one mode are received
in the next flow that runs the processor, in any mode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import DeclarationError
from penstock.core.stored_json import canonical_json
from penstock.pipelines.plan import modes_of, plan_of

RECEIVES: Final = 1
"""Bit of `processors.entity_role`: the processor is incremental."""
FEEDS: Final = 2
"""Bit: an incremental processor receives the changes that this processor reports."""
MUST_REPORT: Final = 4
"""Bit: an incremental processor receives everything if this processor does not report."""
_SIGNED: Final = ("needs", "produces", "entities", "incremental", "incremental_per")
"""Options that determine what a processor must process; if one changes, it processes everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalPlan:
    """Inputs of one incremental processor."""

    kinds: tuple[str, ...]
    """Kinds of entities that it receives."""
    sources: tuple[tuple[str, str], ...]
    """Phase and name of the processors before it."""
    required: frozenset[tuple[str, str]]
    """Sources that must report."""
    is_per_partition: bool
    """Whether it receives the changes of its own partition only."""
    signature: str
    """Digest of everything that determines its input."""


def incremental_of(definition: Mapping[str, Any]) -> dict[tuple[str, str], IncrementalPlan]:
    """Return the incremental processors of a definition, by phase and name."""
    phases = {phase["name"]: phase for phase in definition["phases"]}
    wanted = [
        (phase["name"], processor)
        for phase in definition["phases"]
        for processor in phase["processors"]
        if processor.get("incremental") is not None
    ]
    if not wanted:
        return {}
    before: dict[str, dict[str, None]] = {name: {} for name in phases}
    for mode in modes_of(definition).values():
        for planned in plan_of(definition, mode).phases:
            before[planned.name].update(dict.fromkeys(planned.after))
    found = {}
    for phase_name, processor in wanted:
        sources = {
            (name, given["name"]): tuple(given.get("entities", ()))
            for name in before[phase_name]
            for given in phases[name]["processors"]
        }
        listed = tuple(processor["incremental"])
        declared = dict.fromkeys(kind for kinds in sources.values() for kind in kinds)
        kinds = listed or tuple(declared)
        required = frozenset(
            key for key, own in sources.items() if not listed or set(own) & set(listed)
        )
        per_partition = processor.get("incremental_per") == "partition"
        own = {name: processor[name] for name in _SIGNED if name in processor}
        text = canonical_json(
            [own, sorted(kinds), sorted(map(list, sources)), sorted(map(list, required))]
        )
        found[phase_name, processor["name"]] = IncrementalPlan(
            kinds=kinds,
            sources=tuple(sources),
            required=required,
            is_per_partition=per_partition,
            signature=hashlib.sha256(text.encode()).hexdigest()[:32],
        )
    return found


def entity_roles(definition: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return the roles of processors in incremental cascades, as bits; processors without a role
    are omitted.
    """
    roles: dict[tuple[str, str], int] = {}
    for key, plan in incremental_of(definition).items():
        roles[key] = roles.get(key, 0) | RECEIVES
        for source in plan.sources:
            more = FEEDS | (MUST_REPORT if source in plan.required else 0)
            roles[source] = roles.get(source, 0) | more
    return roles


def check_incremental(definition: Mapping[str, Any]) -> None:
    """Raise DeclarationError for an incremental processor that could never receive a change."""
    declared = {
        (phase["name"], given["name"]): given.get("entities", ())
        for phase in definition["phases"]
        for given in phase["processors"]
    }
    for (phase, name), plan in incremental_of(definition).items():
        where = f"processor {definition['name']}/{phase}/{name}: incremental"
        if not plan.sources:
            raise DeclarationError(
                f"{where} needs a phase before it, but {phase} comes first in every mode; "
                "declare phase(..., after=...) or remove incremental."
            )
        known = sorted({kind for source in plan.sources for kind in declared[source]})
        for kind in plan.kinds or ("",):
            if kind not in known:
                what = f"entities={[kind or 'players']!r}"
                given = f"; reported before it: {', '.join(known)}" if known else ""
                subject = f"entities of kind {kind!r}" if kind else "entities"
                raise DeclarationError(
                    f"{where}: no processor before it declares that it reports {subject}; "
                    f"declare {what} on one{given}."
                )
