"""Actions on runs, flows, overrides, interventions and breakers."""

from __future__ import annotations

from typing import Final

from penstock.client import UseCaseGroups
from penstock.flows.breakers.records import BreakerTarget
from penstock.flows.records import FlowRequest
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.parts import address
from penstock.web.words import plural

WHY: Final = ActionField(name="reason", label="reason", hint="why, for the journal")


def _retry(client: UseCaseGroups, values: Values) -> DeedOutcome:
    before = client.runs.get(values["run_id"])
    made = client.runs.retry(values["run_id"])
    return DeedOutcome(
        text=f"{before.processor} of {before.customer} runs again now, with the same parameters.",
        rows=[("ended as", str(before.state)), ("error", before.error_type or "–")],
        links=[(address("runs", made.run_id), "See the new run")],
    )


def _cancel_run(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.runs.cancel(values["run_id"], reason=values.get("reason", ""))
    phrase = {
        "cancelled": "The run is cancelled; it had not started.",
        "asked": "The run is asked to stop; it does so at its next heartbeat.",
        "forced": "The run is ended.",
    }
    return DeedOutcome(text=phrase[done.outcome])


def _cancel_flow(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.flows.cancel(values["flow_id"], values.get("reason", ""))
    return DeedOutcome(
        text=f"The flow is cancelled with {plural(done.runs, 'run')}. What has completed stays "
        "complete; the partition can be triggered again."
    )


def _request(values: Values) -> FlowRequest:
    return FlowRequest(
        pipeline=values.get("pipeline", ""),
        customer=values.get("customer") or None,
        partition=values.get("partition") or None,
        mode=values.get("mode") or None,
        phases=values["phase"].split() if values.get("phase") else [],
        config=values.get("config_id") or None,
        force=bool(values.get("force")),
    )


def _trigger(client: UseCaseGroups, values: Values) -> DeedOutcome:
    request = _request(values)
    shown = client.previews.trigger(request)
    done = client.flows.trigger(request)
    rows = [(phase.phase, f"{phase.fate}: {', '.join(phase.processors)}") for phase in shown.phases]
    return DeedOutcome(
        text=shown.text,
        rows=rows,
        links=[(address("flows", done.flow.flow_id), "See the flow")],
    )


def _revoke(client: UseCaseGroups, values: Values) -> DeedOutcome:
    client.overrides.revoke(values["override_id"], values.get("reason", ""))
    return DeedOutcome(text="The override ends now; phases that started under it continue.")


def _resolve(client: UseCaseGroups, values: Values) -> DeedOutcome:
    client.interventions.resolve(values["intervention_id"], values.get("resolution", ""))
    return DeedOutcome(text="The intervention is resolved; its gate is evaluated again now.")


def _reset(client: UseCaseGroups, values: Values) -> DeedOutcome:
    target = BreakerTarget(
        pipeline=values.get("pipeline", ""),
        partition=values.get("partition", ""),
        phase=values.get("phase", ""),
        customer=values.get("customer") or None,
        reason=values.get("reason", ""),
    )
    done = client.breakers.reset(target)
    return DeedOutcome(
        text=f"The breaker is closed; {plural(len(done.flow_ids), 'flow')} is evaluated again."
    )


def _trigger_command(values: Values) -> str:
    words = [values.get(name, "") for name in ("pipeline", "partition", "phase")]
    flags = ["--force"] if values.get("force") else []
    return command_line(
        "trigger",
        *[part for part in words if part],
        *flags,
        customer=values.get("customer"),
        mode=values.get("mode"),
        config_id=values.get("config_id"),
    )


_ABOUT: Final = ("pipeline", "partition", "phase", "customer")

WORK_ACTIONS: Final = (
    Action(
        name="retry-run",
        question=lambda values: f"Retry {values.get('run_id')}?",
        label=lambda _: "Retry",
        deed=_retry,
        command=lambda values: command_line("runs", "retry", values["run_id"]),
        back=lambda values: address("runs", values["run_id"]),
        fixed=("run_id",),
        nav="runs",
    ),
    Action(
        name="cancel-run",
        question=lambda values: f"Cancel {values.get('run_id')}?",
        label=lambda _: "Cancel the run",
        deed=_cancel_run,
        command=lambda values: command_line(
            "runs", "cancel", values["run_id"], reason=values.get("reason")
        ),
        back=lambda values: address("runs", values["run_id"]),
        fixed=("run_id",),
        fields=(WHY,),
        is_final=True,
        nav="runs",
    ),
    Action(
        name="cancel-flow",
        question=lambda values: f"Cancel {values.get('flow_id')}?",
        label=lambda _: "Cancel the flow",
        deed=_cancel_flow,
        command=lambda values: command_line(
            "flows", "cancel", values["flow_id"], reason=values.get("reason")
        ),
        back=lambda values: address("flows", values["flow_id"]),
        fixed=("flow_id",),
        fields=(WHY,),
        is_final=True,
        nav="flows",
    ),
    Action(
        name="trigger",
        question=lambda _: "Trigger a flow?",
        label=lambda _: "Trigger",
        deed=_trigger,
        command=_trigger_command,
        back=lambda values: address("flows", pipeline=values.get("pipeline")),
        fixed=("force", "config_id"),
        fields=(
            ActionField(name="pipeline", label="pipeline", is_required=True),
            ActionField(name="partition", label="partition", hint="the mode's current one"),
            ActionField(name="mode", label="mode", hint="that of the newest flow, else manual"),
            ActionField(name="phase", label="from phase", hint="the first phases"),
            ActionField(name="customer", label="customer", hint="default"),
        ),
        nav="flows",
    ),
    Action(
        name="revoke",
        question=lambda values: f"Revoke {values.get('override_id')}?",
        label=lambda _: "Revoke",
        deed=_revoke,
        command=lambda values: command_line(
            "override", "revoke", values["override_id"], reason=values.get("reason")
        ),
        back=lambda _: "/interventions",
        fixed=("override_id",),
        fields=(WHY,),
        nav="interventions",
    ),
    Action(
        name="resolve",
        question=lambda values: f"Resolve {values.get('intervention_id')}?",
        label=lambda _: "Resolve",
        deed=_resolve,
        command=lambda values: command_line(
            "interventions", "resolve", values["intervention_id"],
            resolution=values.get("resolution") or "…",
        ),
        back=lambda values: address("interventions", values["intervention_id"]),
        fixed=("intervention_id",),
        fields=(
            ActionField(
                name="resolution", label="what was done", is_required=True, stand_in="preview"
            ),
        ),
        nav="interventions",
    ),
    Action(
        name="reset-breaker",
        question=lambda values: f"Reset the breaker of {values.get('phase')}?",
        label=lambda _: "Reset",
        deed=_reset,
        command=lambda values: command_line(
            "breakers", "reset", values["pipeline"], values["partition"], values["phase"],
            customer=values.get("customer"), reason=values.get("reason"),
        ),
        back=lambda _: "/breakers",
        fixed=_ABOUT,
        fields=(WHY,),
        nav="breakers",
    ),
)  # fmt: skip
