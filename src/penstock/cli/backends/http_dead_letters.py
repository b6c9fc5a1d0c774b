"""Implement the use cases for dead letters through the API, with the generated client."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.cli.backends.paging import read_pages
from penstock.cli.backends.protocol import Shape, rename_field
from penstock.cli.backends.protocol_dead_letters import DeadLetterQuery, DeadLetterStep
from penstock.core.clock import iso
from penstock.dead_letters.client.deliveries import Edit
from penstock.remote import Api


class HttpDeadLetters:
    """Use cases for dead letters through the API."""

    def __init__(self, api: Api) -> None:
        # Typed as Any: commands read the typed responses of the client as plain JSON objects.
        self._dead_letters: Any = api.dead_letters

    def page(self, asked: DeadLetterQuery, limit: int) -> list[Shape]:
        """Return dead letters, newest first."""
        return read_pages(self._dead_letters.list_dead_letters, limit, _query(asked))

    def groups(self, asked: DeadLetterQuery, limit: int) -> list[Shape]:
        """Return counts of dead letters by origin and error type."""
        found: list[Shape] = self._dead_letters.group_dead_letters(limit=limit, **_query(asked))[
            "items"
        ]
        return found

    def detail(self, dead_letter_id: str) -> Shape:
        """Return one dead letter with its run or message."""
        found: Shape = self._dead_letters.get_dead_letter(dead_letter_id)
        return found

    def replay(self, dead_letter_id: str, edit: Edit | None) -> Shape:
        """Replay one dead letter, optionally edited; return what it was replayed as."""
        body: Shape = {}
        if edit is not None:
            body = {
                "parameters": edit.parameters,
                "data": None if edit.data is None else base64.b64encode(edit.data).decode(),
                "attributes": edit.attributes,
            }
        replayed: Shape = self._dead_letters.replay_dead_letter(dead_letter_id, _given(body))
        return replayed

    def replay_matching(self, asked: DeadLetterQuery, step: DeadLetterStep) -> Shape:
        """Replay the next `step.limit` dead letters that match; return the outcomes."""
        body = _query(asked) | {
            "limit": step.limit,
            "rate": step.rate,
            "before": step.before,
            "start_at": None if step.start_at is None else iso(step.start_at),
            "dry_run": step.is_dry,
        }
        body.pop("status")
        with rename_field("pipeline", ["pipeline_template"]):
            page: Shape = self._dead_letters.replay_dead_letters(_given(body))
        return page

    def discard(self, dead_letter_id: str, reason: str) -> None:
        """Close a dead letter without a replay."""
        self._dead_letters.discard_dead_letter(dead_letter_id, {"reason": reason})


def _query(asked: DeadLetterQuery) -> Shape:
    """Return the filter as the API's query parameters."""
    fields = asdict(asked)
    fields["customer_id"] = fields.pop("customer")
    fields["pipeline_template"] = fields.pop("pipeline")
    for name in ("since", "until"):
        fields[name] = None if fields[name] is None else iso(fields[name])
    return fields


def _given(body: Mapping[str, Any]) -> Shape:
    return {name: value for name, value in body.items() if value is not None}
