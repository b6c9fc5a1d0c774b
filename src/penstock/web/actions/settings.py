"""Actions that change settings: the capacity and the rate of a limit.

Fields start empty, and an empty one keeps its setting, so that the command names exactly what is
changed. The first form shows the current settings, the second the preview.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput
from penstock.limits.records import Limit
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.parts import address
from penstock.web.words import number, plural

KEPT: Final = "as it is"
ENTER: Final = "Enter what to change; an empty field keeps its setting."


def _set_limit(client: UseCaseGroups, values: Values) -> DeedOutcome:
    before = client.limits.get(values["name"]).limit
    given: dict[str, Any] = {}
    if values.get("capacity"):
        given["capacity"] = _number("capacity", values["capacity"], int)
    if values.get("rate"):
        given["rate"] = _number("rate", values["rate"], float)
    if not given:
        rows = [("capacity", _capacity(before)), ("rate", _rate(before)), *_use(before)]
        return DeedOutcome(text=ENTER, rows=rows, is_asked=True)
    after = client.limits.declare(before.name, **given).limit
    rows = (
        [("capacity", _change(_capacity(before), _capacity(after)))] if "capacity" in given else []
    )
    rows += [("rate", _change(_rate(before), _rate(after)))] if "rate" in given else []
    return DeedOutcome(text=_limit_text(before, after), rows=[*rows, *_use(after)])


def _limit_text(before: Limit, after: Limit) -> str:
    """Return what a change of a limit means for those who hold it or wait for it."""
    phrase = "The change takes effect immediately, in all processes."
    served = before.waiting - after.waiting
    if served > 0:
        phrase += (
            f" {plural(served, 'request that waits gets', 'requests that wait get')} slots now."
        )
    if after.effective_capacity == 0:
        return (
            f"{phrase} Nothing is granted until the capacity is raised; holders keep their slots."
        )
    if after.effective_capacity is not None and after.held > after.effective_capacity:
        return f"{phrase} Holders keep their slots; nothing is granted until enough are free."
    return phrase


def _use(one: Limit) -> list[tuple[str, str]]:
    return [("held", number(one.held)), ("waiting", number(one.waiting + one.waiting_runs))]


def _capacity(one: Limit) -> str:
    return "no bound" if one.capacity is None else number(one.capacity)


def _rate(one: Limit) -> str:
    return "no rate" if one.rate is None else f"{one.rate:g} a second"


def _change(before: str, after: str) -> str:
    return f"{after}, as before" if before == after else f"{before} → {after}"


def _number(name: str, given: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(given.strip())
    except ValueError:
        raise InvalidInput(name, "a whole number" if kind is int else "a number", given) from None


SETTING_ACTIONS: Final = (
    Action(
        name="set-limit",
        question=lambda values: f"Change the limit {values.get('name')}?",
        label=lambda _: "Change the limit",
        deed=_set_limit,
        command=lambda values: command_line(
            "limits", "set", values["name"], capacity=values.get("capacity"),
            rate=values.get("rate"),
        ),
        back=lambda values: address("limits", values["name"]),
        fixed=("name",),
        fields=(
            ActionField(name="capacity", label="capacity", hint=KEPT),
            ActionField(name="rate", label="rate a second", hint=KEPT),
        ),
        nav="limits",
    ),
)  # fmt: skip
