"""Buttons for suggested commands, which open the preview of the same action."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.web.parts import Button, address

OPTIONS: Final = {
    "--phase": "phase", "--dependency": "dependency", "--customer": "customer", "--mode": "mode",
    "--expires": "expires",
}  # fmt: skip
BY_ID: Final[Mapping[tuple[str, str], tuple[str, str, str]]] = {
    ("runs", "retry"): ("retry-run", "run_id", "Retry…"),
    ("runs", "cancel"): ("cancel-run", "run_id", "Cancel…"),
    ("flows", "cancel"): ("cancel-flow", "flow_id", "Cancel…"),
    ("dlq", "replay"): ("replay-letter", "dead_letter_id", "Replay…"),
    ("dlq", "discard"): ("discard-letter", "dead_letter_id", "Discard…"),
    ("interventions", "resolve"): ("resolve", "intervention_id", "Resolve…"),
    ("interventions", "approve"): ("approve", "intervention_id", "Approve…"),
    ("configs", "enable"): ("enable-config", "config_id", "Enable…"),
    ("configs", "start"): ("start-config", "config_id", "Start…"),
    ("override", "revoke"): ("revoke", "override_id", "Revoke…"),
}
"""Group and command → action, its field, and the label of the button."""


def button_of(command: str) -> Button | None:
    """Return the button of a command; None if there is no equivalent action."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if len(words) < 3 or words[0] != "penstock":
        return None
    known = BY_ID.get((words[1], words[2]))
    if known is not None and len(words) > 3 and "_" in words[3]:
        action, field, label = known
        return Button(label=label, href=address("do", action, **{field: words[3]}))
    if words[1:3] == ["override", "grant"] and len(words) > 4:
        return Button(label="Override…", href=_with(words[3:], "override"))
    if words[1] == "trigger" and len(words) > 3:
        return Button(label="Trigger…", href=_with(words[2:], "trigger"))
    return None


def _with(words: Sequence[str], action: str) -> str:
    given = {"pipeline": words[0], "partition": words[1]}
    for option, value in itertools.pairwise(words[2:]):
        if option in OPTIONS:
            given[OPTIONS[option]] = value
    return address("do", action, **given)
