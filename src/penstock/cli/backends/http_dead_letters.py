"""Commands about dead letters through the API, with the generated client."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.cli.backends.paging import gather
from penstock.cli.backends.protocol import Shape, named
from penstock.cli.backends.protocol_dead_letters import LettersAsked, Step
from penstock.core.clock import iso
from penstock.dead_letters.client.deliveries import Edit
from penstock.remote import Api


class ThereLetters:
    """The use cases over the API."""

    def __init__(self, api: Api) -> None:
        # Answers are JSON objects by the document's word; commands read them as such.
        self._letters: Any = api.letters

    def page(self, asked: LettersAsked, limit: int) -> list[Shape]:
        """Dead letters, newest first."""
        return gather(self._letters.list_dead_letters, limit, _query(asked))

    def groups(self, asked: LettersAsked, limit: int) -> list[Shape]:
        """Dead letters by origin and kind of error."""
        found: list[Shape] = self._letters.group_dead_letters(limit=limit, **_query(asked))["items"]
        return found

    def detail(self, letter_id: str) -> Shape:
        """One in full."""
        found: Shape = self._letters.get_dead_letter(letter_id)
        return found

    def replay(self, letter_id: str, edit: Edit | None) -> Shape:
        """Try one again, as it is or edited."""
        body: Shape = {}
        if edit is not None:
            body = {
                "parameters": edit.parameters,
                "data": None if edit.data is None else base64.b64encode(edit.data).decode(),
                "attributes": edit.attributes,
            }
        told: Shape = self._letters.replay_dead_letter(letter_id, _given(body))
        return told

    def replay_matching(self, asked: LettersAsked, step: Step) -> Shape:
        """A step of a replay by filter."""
        body = _query(asked) | {
            "limit": step.limit,
            "rate": step.rate,
            "before": step.before,
            "start_at": None if step.start_at is None else iso(step.start_at),
            "dry_run": step.is_dry,
        }
        body.pop("status")
        with named("pipeline", ["pipeline_template"]):
            told: Shape = self._letters.replay_dead_letters(_given(body))
        return told

    def discard(self, letter_id: str, reason: str) -> None:
        """Give one up."""
        self._letters.discard_dead_letter(letter_id, {"reason": reason})


def _query(asked: LettersAsked) -> Shape:
    """The same in the API's words."""
    fields = asdict(asked)
    fields["customer_id"] = fields.pop("customer")
    fields["pipeline_template"] = fields.pop("pipeline")
    for name in ("since", "until"):
        fields[name] = None if fields[name] is None else iso(fields[name])
    return fields


def _given(body: Mapping[str, Any]) -> Shape:
    return {name: value for name, value in body.items() if value is not None}
