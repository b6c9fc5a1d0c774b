"""Actions on subscriptions: pause, resume, redeliver messages since a time, remove the backlog."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.client import UseCaseGroups
from penstock.core.clock import parse_duration, parse_iso, to_datetime
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.parts import address
from penstock.web.words import number, plural

_SINCE: Final = ActionField(
    name="since",
    label="since",
    hint="an age such as 2h or 3d, or a time such as 2026-03-02T02:00:00Z",
    is_required=True,
    stand_in="1h",
)


def _seek(client: UseCaseGroups, values: Values) -> DeedOutcome:
    given = values["since"].strip()
    is_age = given[:1].isdigit() and given[-1:].lower() in "smhdw"
    to = client.now() - parse_duration(given, "since") if is_age else parse_iso(given, "since")
    done = client.subscriptions.seek(
        values["name"], to_datetime(to), customer=values.get("customer") or None
    )
    return DeedOutcome(
        text=f"{plural(done.delivered_again, 'message')} published since "
        f"{done.time:%Y-%m-%d %H:%M} UTC {'is' if done.delivered_again == 1 else 'are'} "
        "delivered again. What was published before and still waits is removed.",
        rows=[("delivered again", number(done.delivered_again)), ("removed", number(done.purged))],
        is_nothing=not done.delivered_again and not done.purged,
    )


def _purge(client: UseCaseGroups, values: Values) -> DeedOutcome:
    count = client.subscriptions.purge(values["name"], customer=values.get("customer") or None)
    return DeedOutcome(
        text=f"{plural(count, 'message is', 'messages are')} removed from the backlog and will "
        "not be delivered. A seek can still bring them back while the topic keeps them.",
        count=count,
        acted=count,
        is_nothing=not count,
    )


def _set_paused(client: UseCaseGroups, values: Values, *, is_paused: bool) -> DeedOutcome:
    customer = values.get("customer") or None
    client.subscriptions.pause(values["name"], is_paused, customer=customer)
    if not is_paused:
        text = "Messages are delivered again; those that wait for a retry are due at once."
        return DeedOutcome(text=text)
    return DeedOutcome(
        text="No message is delivered until you resume it. New messages are kept, within the "
        "retention of the subscription; delivered ones can still be acknowledged."
    )


def _page(values: Values) -> str:
    return address("subscriptions", values["name"], customer=values.get("customer") or None)


def _switch(verb: str, *, is_paused: bool) -> Action:
    """Return the action that pauses or resumes a subscription."""
    return Action(
        name=f"{verb}-subscription",
        question=lambda values: f"{verb.title()} {values.get('name')}?",
        label=lambda _: verb.title(),
        deed=partial(_set_paused, is_paused=is_paused),
        command=lambda values: command_line(
            "subscriptions", verb, values["name"], customer=values.get("customer")
        ),
        back=_page,
        fixed=("name", "customer"),
        nav="topics",
    )


BUS_ACTIONS: Final = (
    _switch("pause", is_paused=True),
    _switch("resume", is_paused=False),
    Action(
        name="seek-subscription",
        question=lambda values: f"Deliver messages of {values.get('name')} again?",
        label=lambda _: "Deliver again",
        deed=_seek,
        command=lambda values: command_line(
            "subscriptions", "seek", values["name"], values.get("since") or "1h",
            customer=values.get("customer"),
        ),
        back=_page,
        fixed=("name", "customer"),
        fields=(_SINCE,),
        nav="topics",
    ),
    Action(
        name="purge-subscription",
        question=lambda values: f"Remove the backlog of {values.get('name')}?",
        label=lambda outcome: f"Remove {number(outcome.count or 0)}",
        deed=_purge,
        command=lambda values: command_line(
            "subscriptions", "purge", values["name"], customer=values.get("customer")
        ),
        back=_page,
        fixed=("name", "customer"),
        is_final=True,
        nav="topics",
    ),
)  # fmt: skip
