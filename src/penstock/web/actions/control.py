"""Actions on schedules, shared capacity and alerts: start, enable, release, acknowledge."""

from __future__ import annotations

from typing import Final

from penstock.client import UseCaseGroups
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.actions.dead_letters import REASON
from penstock.web.actions.work import WHY
from penstock.web.parts import address
from penstock.web.words import plural


def _start(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.configs.start(values["config_id"], trigger_source="dashboard")
    return DeedOutcome(
        text=f"{plural(len(done.run_ids), 'run starts', 'runs start')} now, in addition to the "
        "schedule.",
        links=[(address("runs", run), "See the run") for run in done.run_ids[:1]],
    )


def _enable(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.configs.enable(values["config_id"], reason=values["reason"])
    next_at = done.next_run_time
    phrase = "" if next_at is None else f" Its next start is {next_at:%Y-%m-%d %H:%M} UTC."
    return DeedOutcome(text=f"The config is active and its failures count from 0.{phrase}")


def _disable(client: UseCaseGroups, values: Values) -> DeedOutcome:
    client.configs.disable(values["config_id"], reason=values["reason"])
    return DeedOutcome(text="The config is off: its schedule starts nothing until it is enabled.")


def _release(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.limits.release(values["lease_id"], values.get("reason", ""))
    return DeedOutcome(
        text="The slot goes to the next in the queue. The holder's writes are refused by its "
        "fencing token.",
        rows=[("holder", done.run_id or done.holder), ("slots", str(done.weight))],
    )


def _acknowledge(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.alerts.acknowledge(values["alert_id"], note=values.get("note") or None)
    return DeedOutcome(
        text="You take over: no more notices are sent about the alert until it is resolved.",
        rows=[("alert", done.message), ("acknowledged by", done.acknowledged_by or "")],
    )


def _resolve_alert(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.alerts.resolve(values["alert_id"], note=values.get("note") or None)
    return DeedOutcome(
        text="The alert is closed. Its rule opens it again if the cause is still there.",
        rows=[("alert", done.message)],
    )


def _test_channel(client: UseCaseGroups, values: Values) -> DeedOutcome:
    queued = client.alerts.test_channel(values["channel"])
    return DeedOutcome(
        text=f"A test message is sent through {queued.channel} within seconds, and tried once. The "
        "list of channels shows whether it was accepted.",
        links=[("/alerts", "See the channels")],
    )


def _alert_page(values: Values) -> str:
    return address("alerts", values["alert_id"])


def _config_page(values: Values) -> str:
    return address("configs", values["config_id"])


_NOTE: Final = ActionField(name="note", label="note", hint="for others")

CONTROL_ACTIONS: Final = (
    Action(
        name="acknowledge",
        question=lambda values: f"Acknowledge {values.get('alert_id')}?",
        label=lambda _: "Acknowledge",
        deed=_acknowledge,
        command=lambda values: command_line(
            "alerts", "ack", values["alert_id"], note=values.get("note")
        ),
        back=_alert_page,
        fixed=("alert_id",),
        fields=(_NOTE,),
        nav="alerts",
    ),
    Action(
        name="resolve-alert",
        question=lambda values: f"Resolve {values.get('alert_id')}?",
        label=lambda _: "Resolve",
        deed=_resolve_alert,
        command=lambda values: command_line(
            "alerts", "resolve", values["alert_id"], note=values.get("note")
        ),
        back=_alert_page,
        fixed=("alert_id",),
        fields=(_NOTE,),
        nav="alerts",
    ),
    Action(
        name="test-channel",
        question=lambda values: f"Send a test message through {values.get('channel')}?",
        label=lambda _: "Send the test",
        deed=_test_channel,
        command=lambda values: command_line("alerts", "test", values["channel"]),
        back=lambda _: "/alerts",
        fixed=("channel",),
        nav="alerts",
    ),
    Action(
        name="start-config",
        question=lambda values: f"Start {values.get('config_id')} now?",
        label=lambda _: "Start now",
        deed=_start,
        command=lambda values: command_line("configs", "start", values["config_id"]),
        back=_config_page,
        fixed=("config_id",),
        nav="configs",
    ),
    Action(
        name="enable-config",
        question=lambda values: f"Enable {values.get('config_id')}?",
        label=lambda _: "Enable",
        deed=_enable,
        command=lambda values: command_line(
            "configs", "enable", values["config_id"], reason=values.get("reason")
        ),
        back=_config_page,
        fixed=("config_id",),
        fields=(WHY,),
        nav="configs",
    ),
    Action(
        name="disable-config",
        question=lambda values: f"Disable {values.get('config_id')}?",
        label=lambda _: "Disable",
        deed=_disable,
        command=lambda values: command_line(
            "configs", "disable", values["config_id"], reason=values.get("reason")
        ),
        back=_config_page,
        fixed=("config_id",),
        fields=(WHY,),
        nav="configs",
    ),
    Action(
        name="release-lease",
        question=lambda values: f"Take the slot of {values.get('lease_id')} away?",
        label=lambda _: "Release",
        deed=_release,
        command=lambda values: command_line(
            "limits", "release", values["lease_id"], reason=values.get("reason") or "…"
        ),
        back=lambda _: "/limits",
        fixed=("lease_id",),
        fields=(REASON,),
        is_final=True,
        nav="limits",
    ),
)
