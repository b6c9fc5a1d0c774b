"""Actions on gates and items: check a gate now, evaluate it again, retry failed items."""

from __future__ import annotations

from typing import Final

from penstock.client import UseCaseGroups
from penstock.flows.gates.records import GateCheck, GateDependency
from penstock.flows.items.records import ItemRetry
from penstock.web.actions.action import Action, DeedOutcome, Values, command_line
from penstock.web.parts import address
from penstock.web.words import duration, number, plural, word

_WHERE: Final = ("pipeline", "partition", "phase", "customer", "flow_id")


def _check(client: UseCaseGroups, values: Values) -> DeedOutcome:
    found = client.gates.check(
        values.get("pipeline", ""),
        values.get("phase", ""),
        processor=values.get("processor") or None,
        partition=values.get("partition") or None,
        mode=values.get("mode") or None,
        customer=values.get("customer") or None,
        flow_id=values.get("flow_id") or None,
    )
    again = address("do", "recheck", **{name: values.get(name) for name in _WHERE})
    is_waiting = found.flow_id is not None and found.is_evaluable
    return DeedOutcome(
        text=_verdict_text(found),
        rows=[
            ("verdict", f"{word(found.verdict)}, by rule {found.rule}"),
            ("completeness", f"{found.completeness:g} %, quality {found.quality:.2f}"),
            *[("because", reason) for reason in found.reasons[:5]],
            *[(one.table, dependency_text(one)) for one in found.dependencies],
        ],
        links=[(again, "Evaluate it in the flow…")] if is_waiting else [],
    )


def _verdict_text(found: GateCheck) -> str:
    now = f"The gate of {found.processor or found.phase} would decide now: {word(found.verdict)}."
    if not found.dependencies:
        return f"{now} It checks no data: it depends on earlier phases only."
    if found.flow_id is not None and not found.is_evaluable:
        return (
            f"{now} The flow does not evaluate it: an earlier phase is not complete, or this "
            "phase has started."
        )
    return f"{now} Nothing was changed."


def dependency_text(one: GateDependency) -> str:
    """Return what a gate found about a dependency."""
    parts = [word(one.status)]
    if one.days_required is not None:
        parts.append(f"{number(one.days_present)} of {number(one.days_required)} days")
    elif one.found_rows is not None:
        parts.append(f"{number(one.found_rows)} of {number(one.required_rows)} rows")
    parts.append(f"quality {one.quality:.2f}")
    if one.probe_time is not None:
        parts.append(f"probed in {duration(one.probe_time)}")
    return " · ".join([*parts, *one.issues])


def _before_check(client: UseCaseGroups, values: Values) -> DeedOutcome:
    """Return what the check will probe, with the evidence of the newest decision."""
    phase, processor = values.get("phase", ""), values.get("processor") or None
    newest = client.gates.decisions(
        values.get("pipeline", ""),
        partition=values.get("partition") or None,
        phase=phase,
        customer=values.get("customer") or None,
        limit=10,
    ).items
    last = next((one for one in newest if processor in (None, one.processor)), None)
    return DeedOutcome(
        text=f"The data that {processor or phase} needs is probed now, which may take a minute. "
        "Nothing is changed, and the flow goes on by its own evaluations.",
        rows=[]
        if last is None
        else [(one.table, f"{dependency_text(one)} (last decision)") for one in last.dependencies],
    )


def _recheck(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.gates.recheck(
        values.get("pipeline", ""),
        partition=values.get("partition") or None,
        phase=values.get("phase") or None,
        customer=values.get("customer") or None,
        flow_id=values.get("flow_id") or None,
    )
    return DeedOutcome(
        text=f"{plural(len(done.flow_ids), 'flow is', 'flows are')} evaluated now; the gate "
        "decides in a moment."
        if done.flow_ids
        else "No gate waits or is blocked.",
        is_nothing=not done.flow_ids,
    )


def _retry_items(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.items.retry(
        values["flow_id"],
        ItemRetry(
            processor=values.get("processor") or None,
            match=values.get("match") or None,
            error_type=values.get("error_type") or None,
        ),
    )
    count = len(done.run_ids)
    more = " More are left: repeat it." if done.has_more else ""
    return DeedOutcome(
        text=f"{plural(count, 'failed item runs', 'failed items run')} again now.{more}"
        if count
        else "No failed item fits.",
        rows=[("items", ", ".join(done.items[:10]) + (" …" if count > 10 else ""))],
        count=count,
        acted=count,
        is_nothing=not count,
    )


def _flow_page(values: Values) -> str:
    if values.get("flow_id"):
        return address("flows", values["flow_id"])
    return address("flows", pipeline=values.get("pipeline"), partition=values.get("partition"))


def _target(values: Values) -> list[str]:
    return [values[name] for name in ("pipeline", "partition", "phase") if values.get(name)]


GATE_ACTIONS: Final = (
    Action(
        name="check-gate",
        question=lambda values: f"Check the gate of {values.get('phase')} now?",
        label=lambda _: "Check now",
        deed=_check,
        preview=_before_check,
        command=lambda values: command_line(
            "gate", "check", *_target(values), processor=values.get("processor"),
            customer=values.get("customer"), mode=values.get("mode"),
        ),
        back=_flow_page,
        fixed=(*_WHERE, "processor", "mode"),
        is_slow=True,
        nav="flows",
    ),
    Action(
        name="recheck",
        question=lambda values: f"Evaluate {_gate_name(values)} now?",
        label=lambda _: "Evaluate now",
        deed=_recheck,
        command=lambda values: command_line(
            "gate", "recheck", *_target(values), customer=values.get("customer")
        ),
        back=_flow_page,
        fixed=_WHERE,
        nav="flows",
    ),
    Action(
        name="retry-items",
        question=lambda values: f"Retry the failed items of {values.get('processor') or 'it'}?",
        label=lambda outcome: f"Retry {outcome.acted:,}",
        deed=_retry_items,
        command=lambda values: command_line(
            "items", "retry", values["flow_id"], processor=values.get("processor"),
            match=values.get("match"), error_type=values.get("error_type"),
        ),
        back=_flow_page,
        fixed=("flow_id", "processor", "match", "error_type"),
        nav="flows",
    ),
)  # fmt: skip


def _gate_name(values: Values) -> str:
    return f"the gate of {values['phase']}" if values.get("phase") else "the gates"
