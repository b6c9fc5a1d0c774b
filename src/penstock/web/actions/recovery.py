"""Actions that start work or suppress notices: replay, backfill, approval, silence."""

from __future__ import annotations

from typing import Final

from penstock.alerts.records import NewSilence
from penstock.client import UseCaseGroups
from penstock.core.clock import parse_duration
from penstock.core.errors import InvalidInput
from penstock.core.records.record import minutes
from penstock.recovery.records import Backfill, BackfillRequest, BlastRadius, FlowReplay
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.actions.dead_letters import REASON
from penstock.web.actions.work import WHY
from penstock.web.parts import address
from penstock.web.words import plural

SILENCE: Final = "2h"


def _impact_rows(impact: BlastRadius) -> list[tuple[str, str]]:
    return [(effect.kind, effect.text) for effect in impact.effects[:12]]


def _replay_flow(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.recovery.replay(
        FlowReplay(
            pipeline=values.get("pipeline", ""),
            partition=values.get("partition", ""),
            phase=values.get("phase") or None,
            customer=values.get("customer") or None,
            config=values.get("config_id") or None,
            mode=values.get("mode") or None,
            force=bool(values.get("force")),
            reason=values.get("reason", ""),
        )
    )
    links = [] if done.flow is None else [(address("flows", done.flow.flow_id), "See the flow")]
    return DeedOutcome(text=done.impact.text, rows=_impact_rows(done.impact), links=links)


def _replay_command(values: Values) -> str:
    words = [values.get("pipeline", ""), values.get("partition", "")]
    if values.get("phase"):
        words += ["--from", values["phase"]]
    if values.get("force"):
        words.append("--force")
    return command_line(
        "replay",
        *[word for word in words if word],
        customer=values.get("customer"),
        config_id=values.get("config_id"),
        mode=values.get("mode"),
        reason=values.get("reason"),
    )


def _backfill(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.backfills.start(
        BackfillRequest(
            pipeline=values.get("pipeline", ""),
            first=values.get("first") or None,
            last=values.get("last") or None,
            partitions=values.get("partitions", "").split(),
            customer=values.get("customer") or None,
            mode=values.get("mode") or None,
            parallelism=_number(values.get("parallelism", "")),
            reason=values.get("reason", ""),
        )
    )
    rows = [("partitions", f"{len(done.starts):,}: {', '.join(done.starts[:5])}")]
    rows += [("skipped", text) for text in done.skipped[:5]]
    return DeedOutcome(
        text=done.impact.text,
        rows=[*rows, *_impact_rows(done.impact)],
        is_nothing=not done.starts,
        links=[
            ("/backfills", "See the backfills")
            if done.backfill is None
            else (address("backfills", done.backfill.backfill_id), "See the backfill")
        ],
    )


def _change_backfill(client: UseCaseGroups, values: Values) -> DeedOutcome:
    number, reason = values["backfill_id"], values.get("reason", "")
    if values["change"] == "pause":
        done = client.backfills.pause(number, reason)
        text = f"{_left(done)} start no more; {_running(done)} in progress continue."
    elif values["change"] == "resume":
        done = client.backfills.resume(number, reason, again=bool(values.get("again")))
        text = f"{_left(done)} are processed, {done.parallelism:,} at a time."
    else:
        before = client.backfills.get(number)
        done = client.backfills.cancel(number, reason)
        text = (
            f"{_left(before)} are not processed and {_running(before)} in progress are cancelled; "
            "completed ones stay complete."
        )
    rows = [(state.lower(), f"{count:,}") for state, count in done.counts.items()]
    return DeedOutcome(
        text=text, rows=rows, links=[(address("backfills", number), "See the backfill")]
    )


def _left(one: Backfill) -> str:
    return plural(one.counts.get("PENDING", 0), "waiting partition")


def _running(one: Backfill) -> str:
    return f"{one.counts.get('RUNNING', 0):,}"


def _backfill_change(change: str) -> Action:
    """Return the action that pauses, resumes or cancels a backfill."""
    return Action(
        name=f"{change}-backfill",
        question=lambda values: f"{change.title()} {values.get('backfill_id')}?",
        label=lambda _: f"{change.title()} the backfill",
        deed=lambda client, values: _change_backfill(client, {**values, "change": change}),
        command=lambda values: command_line(
            "backfills",
            change,
            values["backfill_id"],
            *(["--failed"] if values.get("again") and change == "resume" else []),
            reason=values.get("reason"),
        ),
        back=lambda values: address("backfills", values["backfill_id"]),
        fixed=("backfill_id", "again") if change == "resume" else ("backfill_id",),
        fields=(WHY,),
        nav="backfills",
    )


def _number(given: str) -> int:
    if not given:
        return 4
    if not given.isdecimal() or len(given) > 4 or not 1 <= int(given) <= 1_000:
        raise InvalidInput("parallelism", "a number from 1 to 1,000", given)
    return int(given)


def _backfill_command(values: Values) -> str:
    words = [values.get("pipeline", "")]
    for option, name in (("--from", "first"), ("--to", "last")):
        if values.get(name):
            words += [option, values[name]]
    for partition in values.get("partitions", "").split():
        words += ["--partition", partition]
    return command_line(
        "backfill",
        *words,
        customer=values.get("customer"),
        mode=values.get("mode"),
        parallelism=values.get("parallelism"),
        reason=values.get("reason"),
    )


def _approve(client: UseCaseGroups, values: Values) -> DeedOutcome:
    number = values["intervention_id"]
    impact = client.recovery.approval_impact(number)
    made = client.interventions.approve(number, values.get("reason", ""), _lasts(values))
    rows = [*_impact_rows(impact), ("ends", made.expires_at.strftime("%Y-%m-%d %H:%M UTC"))]
    return DeedOutcome(text=impact.text, rows=rows, links=[("/interventions", "See the overrides")])


def _lasts(values: Values) -> str:
    return values.get("expires") or "24h"


def _silence(client: UseCaseGroups, values: Values) -> DeedOutcome:
    made = client.alerts.silence(
        NewSilence(
            reason=values.get("reason", ""),
            alert_id=values.get("alert_id") or None,
            rule=values.get("rule") or None,
            customer=values.get("customer") or None,
            pipeline=values.get("pipeline") or None,
            duration=minutes(parse_duration(values.get("lasts") or SILENCE, "for")),
        )
    )
    return DeedOutcome(
        text=f"{plural(made.alerts, 'open alert makes', 'open alerts make')} no notices until "
        f"{made.ends_at:%Y-%m-%d %H:%M} UTC. They stay listed; what still fires then is reported.",
        links=[(address("do", "end-silence", silence_id=made.silence_id), "End the silence…")],
    )


def _silence_command(values: Values) -> str:
    words = ["alerts", "silence", *([values["alert_id"]] if values.get("alert_id") else [])]
    return command_line(
        *words,
        "--for",
        values.get("lasts") or SILENCE,
        rule=values.get("rule"),
        customer=values.get("customer"),
        pipeline=values.get("pipeline"),
        reason=values.get("reason") or "…",
    )


def _end_silence(client: UseCaseGroups, values: Values) -> DeedOutcome:
    client.alerts.end_silence(values["silence_id"])
    return DeedOutcome(text="The silence has ended; alerts that still fire are reported.")


RECOVERY_ACTIONS: Final = (
    Action(
        name="replay-flow",
        question=lambda values: f"Replay {values.get('pipeline')} {values.get('partition')}?",
        label=lambda _: "Replay",
        deed=_replay_flow,
        command=_replay_command,
        back=lambda values: address("flows", pipeline=values.get("pipeline")),
        fixed=("pipeline", "partition", "customer", "config_id", "mode", "force"),
        fields=(ActionField(name="phase", label="from phase", hint="the first phases"), WHY),
        nav="flows",
    ),
    Action(
        name="approve",
        question=lambda values: f"Approve {values.get('intervention_id')}?",
        label=lambda _: "Approve",
        deed=_approve,
        command=lambda values: command_line(
            "interventions",
            "approve",
            values["intervention_id"],
            reason=values.get("reason") or "…",
            expires=_lasts(values),
        ),
        back=lambda values: address("interventions", values["intervention_id"]),
        fixed=("intervention_id",),
        fields=(
            REASON,
            ActionField(name="expires", label="ends after", hint="24h, at most 7d"),
        ),
        nav="interventions",
    ),
    Action(
        name="backfill",
        question=lambda _: "Start a backfill?",
        label=lambda _: "Start the backfill",
        deed=_backfill,
        command=_backfill_command,
        back=lambda values: address("flows", pipeline=values.get("pipeline")),
        fixed=(),
        fields=(
            ActionField(name="pipeline", label="pipeline", is_required=True),
            ActionField(name="first", label="first partition"),
            ActionField(name="last", label="last partition"),
            ActionField(name="partitions", label="or partitions", hint="separated by spaces"),
            ActionField(name="mode", label="mode", hint="backfill"),
            ActionField(name="customer", label="customer", hint="default"),
            ActionField(name="parallelism", label="at a time", hint="4 partitions"),
            WHY,
        ),
        nav="flows",
    ),
    _backfill_change("pause"),
    _backfill_change("resume"),
    _backfill_change("cancel"),
    Action(
        name="silence",
        question=lambda values: f"Silence {values.get('alert_id') or values.get('rule') or 'it'}?",
        label=lambda _: "Silence",
        deed=_silence,
        command=_silence_command,
        back=lambda values: address("alerts", *filter(None, [values.get("alert_id")])),
        fixed=("alert_id", "rule", "customer", "pipeline"),
        fields=(REASON, ActionField(name="lasts", label="for", hint=SILENCE)),
        nav="alerts",
    ),
    Action(
        name="end-silence",
        question=lambda values: f"End {values.get('silence_id')} now?",
        label=lambda _: "End the silence",
        deed=_end_silence,
        command=lambda values: command_line("alerts", "unsilence", values["silence_id"]),
        back=lambda _: address("alerts"),
        fixed=("silence_id",),
        nav="alerts",
    ),
)
