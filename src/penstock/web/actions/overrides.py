"""The action that grants an override; its preview evaluates the waiting gates with it."""

from __future__ import annotations

from typing import Final

from penstock.client import UseCaseGroups
from penstock.flows.gates.records import (
    GateOverride,
    OverrideRequest,
    OverrideScope,
    ReevaluatedDecision,
    WhatIfRequest,
)
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.actions.dead_letters import REASON
from penstock.web.parts import address
from penstock.web.words import plural

HELD: Final = ("WAITING", "BLOCKED")
FLOWS: Final = 20
"""Maximum number of open flows of the partition that the preview examines."""
DECISIONS: Final = 100
STARTS: Final = {
    "PROCEED": "starts",
    "PROCEED_DEGRADED": "starts, degraded",
    "WAIT": "waits as before",
    "FAIL": "stays blocked",
}


def _request(values: Values) -> OverrideRequest:
    return OverrideRequest(
        pipeline=values.get("pipeline", ""),
        partition=values.get("partition", ""),
        customer=values.get("customer") or None,
        phase=values.get("phase") or None,
        dependency=values.get("dependency") or None,
        reason=values.get("reason", ""),
        expires=values.get("expires") or "4h",
    )


def _preview(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.overrides.grant(_request(values), source="dashboard")
    gates = _gates(client, done)
    return DeedOutcome(text=_text(gates), rows=[*(_row(one) for one in gates), *_facts(done)])


def _grant(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.overrides.grant(_request(values), source="dashboard")
    return DeedOutcome(
        text="The override is granted and the waiting gates are evaluated now. A phase that starts "
        "by it is marked degraded, and so are later phases.",
        rows=_facts(done),
        links=[("/interventions", "See the overrides")],
    )


def _gates(client: UseCaseGroups, done: GateOverride) -> list[ReevaluatedDecision]:
    """Return the last decision of each held gate, evaluated with the override."""
    flows = client.flows.list(
        pipeline=done.pipeline,
        partition=done.partition,
        customer=done.customer,
        only="open",
        limit=FLOWS,
    ).items
    found = []
    for flow in flows:
        phases = client.flows.get(flow.flow_id).phases
        held = {(one.phase, one.processor) for one in phases if one.state in HELD}
        tried = client.gates.what_if(
            WhatIfRequest(
                pipeline=done.pipeline,
                customer=done.customer,
                flow_id=flow.flow_id,
                phase=done.phase,
                override=OverrideScope(phase=done.phase, dependency=done.dependency),
                limit=DECISIONS,
            )
        )
        newest: dict[tuple[str, str | None], ReevaluatedDecision] = {}
        for one in tried.items:
            newest.setdefault((one.phase, one.processor), one)
        found += [one for gate, one in newest.items() if gate in held]
    return sorted(found, key=lambda one: (one.phase, one.processor or "", one.mode))


def _text(gates: list[ReevaluatedDecision]) -> str:
    """Return what starts with the override, by the evidence of the last evaluation."""
    starts = [one for one in gates if one.now in ("PROCEED", "PROCEED_DEGRADED")]
    degraded = any(one.now == "PROCEED_DEGRADED" for one in starts)
    if starts:
        marked = "; it and later phases are marked degraded" if degraded else ""
        which = plural(len(starts), "waiting gate")
        return f"The gate continues without the dependency: {which} starts its runs now{marked}."
    if gates:
        return (
            "Nothing starts: by the evidence of the last evaluation, the gates need more than this "
            "override."
        )
    return (
        "No gate of the partition waits now. A gate that is evaluated before the override ends "
        "continues without the dependency, degraded."
    )


def _row(one: ReevaluatedDecision) -> tuple[str, str]:
    where = f"{one.phase} / {one.processor}" if one.processor else one.phase
    why = "" if one.now == "PROCEED" or not one.reasons else f": {one.reasons[0]}"
    return f"{where}, {one.mode}", f"{STARTS[one.now]}{why}"


def _facts(done: GateOverride) -> list[tuple[str, str]]:
    return [
        ("where", f"{done.pipeline} {done.partition}"),
        ("phase", done.phase or "all phases"),
        ("without", done.dependency or "any dependency"),
        ("approved by", done.approved_by),
        ("ends", done.expires_at.strftime("%Y-%m-%d %H:%M UTC")),
    ]


OVERRIDE_ACTIONS: Final = (
    Action(
        name="override",
        question=lambda values: f"Go on without it, for {values.get('pipeline')} "
        f"{values.get('partition')}?",
        label=lambda _: "Go on degraded",
        deed=_grant,
        preview=_preview,
        command=lambda values: command_line(
            "override", "grant", values["pipeline"], values["partition"],
            phase=values.get("phase"), dependency=values.get("dependency"),
            customer=values.get("customer"), expires=values.get("expires") or "4h",
            reason=values.get("reason") or "…",
        ),
        back=lambda values: address(
            "flows", pipeline=values["pipeline"], partition=values["partition"]
        ),
        fixed=("pipeline", "partition", "phase", "customer", "dependency"),
        fields=(
            REASON,
            ActionField(name="expires", label="ends after", hint="4h, at most 7d"),
        ),
        nav="interventions",
    ),
)  # fmt: skip
