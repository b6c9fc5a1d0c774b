"""Buttons for suggested actions: the preview of the same action, or the page that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.web.parts import Button, address

DIALOGS: Final[Mapping[str, tuple[str, str]]] = {
    "runs.retry": ("retry-run", "Retry…"),
    "items.retry": ("retry-items", "Retry items…"),
    "flows.trigger": ("trigger", "Trigger…"),
    "flows.cancel": ("cancel-flow", "Cancel…"),
    "recovery.replay": ("replay-flow", "Replay…"),
    "gates.check": ("check-gate", "Check now…"),
    "gates.recheck": ("recheck", "Evaluate now…"),
    "overrides.grant": ("override", "Override…"),
    "interventions.resolve": ("resolve", "Resolve…"),
    "pauses.resume": ("resume", "Resume…"),
    "dead_letters.replay": ("replay-letter", "Replay…"),
    "limits.declare": ("set-limit", "Set…"),
}
"""Operation → action of the dashboard, and the label of its button."""
SWITCHES: Final[Mapping[tuple[str, str, bool], tuple[str, str]]] = {
    ("configs.update", "is_active", True): ("enable-config", "Enable…"),
    ("subscriptions.pause", "is_paused", False): ("resume-subscription", "Resume…"),
}
"""The same for operations whose effect depends on one argument, by its name and value."""
PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "runs.detail": ("runs", "run_id"),
    "limits.get": ("limits", "name"),
    "diagnostics.why_flow": ("flows", "flow_id"),
    "diagnostics.explain_flow": ("flows", "flow_id"),
    "diagnostics.why_config": ("configs", "config_id"),
    "configs.occurrences": ("configs", "config_id"),
}
"""Operation that reads one resource → its page, and the argument that names it."""
LISTS: Final = {
    "runs.list_customer": "runs",
    "dead_letters.list": "dead-letters",
    "interventions.list": "interventions",
}
FIELDS: Final = {
    "pipeline_template": "pipeline",
    "customer_id": "customer",
    "from_phase": "phase",
    "phases": "phase",
}
"""Argument of an operation → field of the dashboard's action, where the names differ."""


def button_of(
    action: str | None, arguments: Mapping[str, Any], *, may_operate: bool
) -> Button | None:
    """Return the button of a suggested action; None if no page or dialog does the same.

    may_operate: whether the person may perform actions, not only see pages.
    """
    if action is None:
        return None
    if action in PAGES:
        page, name = PAGES[action]
        return Button(label="Show", href=address(page, arguments[name]), css="sm")
    if action in LISTS:
        return Button(label="Show", href=address(LISTS[action], **_fields(arguments)), css="sm")
    known = DIALOGS.get(action)
    for (operation, name, value), dialog in SWITCHES.items():
        if operation == action and arguments.get(name) is value:
            known = dialog
    if known is None or not may_operate:
        return None
    return Button(label=known[1], href=address("do", known[0], **_fields(arguments)), css="sm")


def _fields(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments as fields of the dashboard's action; switches are part of its name."""
    return {
        FIELDS.get(name, name): " ".join(value) if isinstance(value, list) else str(value)
        for name, value in arguments.items()
        if not isinstance(value, bool)
    }
