"""Actions on selected rows: replay, retry, acknowledge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.alerts.records import AlertSelection
from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput, PenstockError
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.parts import address
from penstock.web.words import plural

CHOSEN_MAX: Final = 100
"""Maximum number of rows that can be selected at a time; a page has fewer."""


def _ids(values: Values) -> list[str]:
    chosen = list(dict.fromkeys(values.get("ids", "").split()))
    if not 1 <= len(chosen) <= CHOSEN_MAX:
        raise InvalidInput("ids", f"1 to {CHOSEN_MAX} ids", len(chosen))
    return chosen


def _each(values: Values, act: Callable[[str], object], word: str, done: str) -> DeedOutcome:
    """Apply the action to each selected row; a rejected row is reported and does not stop the
    others.
    """
    acted, refused = [], []
    for one in _ids(values):
        try:
            act(one)
        except PenstockError as error:
            refused.append((one, error.message))
        else:
            acted.append(one)
    rows = [("chosen", f"{len(acted) + len(refused):,}"), (done, f"{len(acted):,}")]
    rows += [(f"refused: {one}", why) for one, why in refused[:10]]
    return DeedOutcome(
        text=f"{plural(len(acted), word, f'{word}s')} of those chosen: {done}.",
        rows=rows,
        count=len(acted),
        acted=len(acted),
        is_nothing=not acted,
    )


def _replay(client: UseCaseGroups, values: Values) -> DeedOutcome:
    return _each(values, client.dead_letters.replay, "dead letter", "replayed")


def _retry(client: UseCaseGroups, values: Values) -> DeedOutcome:
    return _each(values, client.runs.retry, "run", "retried")


def _acknowledge(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.alerts.acknowledge_many(
        AlertSelection(alert_ids=_ids(values)), note=values.get("note") or None
    )
    return DeedOutcome(
        text=f"You take over {plural(done.changed, 'alert')}: no more notices until resolved.",
        rows=[(one.alert_id, one.message) for one in done.alerts[:10]],
        count=done.changed,
        acted=done.changed,
        is_nothing=not done.changed,
    )


def _command(*words: str) -> Callable[[Values], str]:
    def made(values: Values) -> str:
        return command_line(*words, *values.get("ids", "").split(), note=values.get("note"))

    return made


MANY_ACTIONS: Final = (
    Action(
        name="replay-chosen",
        question=lambda _: "Replay the chosen dead letters?",
        label=lambda outcome: f"Replay {outcome.acted:,}",
        deed=_replay,
        command=_command("dlq", "replay"),
        back=lambda _: address("dead-letters"),
        fixed=("ids",),
        nav="letters",
    ),
    Action(
        name="retry-runs",
        question=lambda _: "Retry the chosen runs?",
        label=lambda outcome: f"Retry {outcome.acted:,}",
        deed=_retry,
        command=_command("runs", "retry"),
        back=lambda _: address("runs"),
        fixed=("ids",),
        nav="runs",
    ),
    Action(
        name="acknowledge-alerts",
        question=lambda _: "Acknowledge the chosen alerts?",
        label=lambda outcome: f"Acknowledge {outcome.acted:,}",
        deed=_acknowledge,
        command=_command("alerts", "ack"),
        back=lambda _: address("alerts"),
        fixed=("ids",),
        fields=(ActionField(name="note", label="note", hint="for others"),),
        nav="alerts",
    ),
)
