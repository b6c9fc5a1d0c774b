"""Actions on dead letters: replay one, edit and replay, discard."""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput
from penstock.dead_letters.records import DeadLetterEdit
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.links import page_of
from penstock.web.parts import address

REASON: Final = ActionField(
    name="reason", label="reason", is_required=True, stand_in="preview", hint="why"
)


def _one(values: Values) -> str:
    return address("dead-letters", values.get("dead_letter_id", ""))


def _replay_one(client: UseCaseGroups, values: Values) -> DeedOutcome:
    return _replayed(client, values["dead_letter_id"], None)


def _replayed(
    client: UseCaseGroups, dead_letter_id: str, edit: DeadLetterEdit | None
) -> DeedOutcome:
    found = client.dead_letters.get(dead_letter_id).dead_letter
    done = client.dead_letters.replay(dead_letter_id, edit)
    what = "the message is delivered again" if found.kind == "delivery" else "a new run starts"
    page = page_of(done.replayed_as)
    return DeedOutcome(
        text=f"{dead_letter_id} is replayed: {what}, with its attempts counted from 1.",
        rows=[("died of", found.error_type), ("replays before", str(found.replays))],
        links=[] if page is None else [(page, "See the new run")],
    )


def _edit_filled(client: UseCaseGroups, values: Values) -> Values:
    detail = client.dead_letters.get(values["dead_letter_id"])
    if detail.message is not None:
        content = detail.message.text
        if content is None:
            raise InvalidInput("content", "text", "bytes", "Use penstock dlq replay --data @FILE")
    else:
        parameters: Any = None if detail.run is None else detail.run.parameters
        content = json.dumps(parameters or {}, indent=2, ensure_ascii=False)
    return {**values, "content": content}


def _edit(client: UseCaseGroups, values: Values) -> DeedOutcome:
    dead_letter_id = values["dead_letter_id"]
    detail = client.dead_letters.get(dead_letter_id)
    content = values.get("content", "").replace("\r\n", "\n")
    if detail.message is not None:
        return _replayed(client, dead_letter_id, DeadLetterEdit(data=content.encode()))
    try:
        parameters = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("content", "a JSON object", str(error)) from None
    if not isinstance(parameters, dict):
        raise InvalidInput("content", "a JSON object", type(parameters).__name__)
    return _replayed(client, dead_letter_id, DeadLetterEdit(parameters=parameters))


def _discard(client: UseCaseGroups, values: Values) -> DeedOutcome:
    client.dead_letters.discard(values["dead_letter_id"], values.get("reason", ""))
    return DeedOutcome(
        text=f"{values['dead_letter_id']} is closed without a replay. It stays readable until its "
        "retention ends."
    )


DEAD_LETTER_ACTIONS: Final = (
    Action(
        name="replay-letter",
        question=lambda values: f"Replay {values.get('dead_letter_id')}?",
        label=lambda _: "Replay",
        deed=_replay_one,
        command=lambda values: command_line("dlq", "replay", values["dead_letter_id"]),
        back=_one,
        fixed=("dead_letter_id",),
        nav="letters",
    ),
    Action(
        name="edit-letter",
        question=lambda values: f"Edit and replay {values.get('dead_letter_id')}?",
        label=lambda _: "Replay edited",
        deed=_edit,
        filled=_edit_filled,
        command=lambda values: command_line(
            "dlq", "replay", values["dead_letter_id"], data="@edited.json"
        ),
        back=_one,
        fixed=("dead_letter_id",),
        fields=(ActionField(name="content", label="content", is_long=True),),
        nav="letters",
    ),
    Action(
        name="discard-letter",
        question=lambda values: f"Discard {values.get('dead_letter_id')}?",
        label=lambda _: "Discard",
        deed=_discard,
        command=lambda values: command_line(
            "dlq", "discard", values["dead_letter_id"], reason=values.get("reason") or "…"
        ),
        back=_one,
        fixed=("dead_letter_id",),
        fields=(REASON,),
        is_final=True,
        nav="letters",
    ),
)
