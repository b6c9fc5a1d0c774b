"""Implement the use cases for dead letters on the database."""

from __future__ import annotations

from dataclasses import asdict

from penstock.cli.backends.protocol import Shape
from penstock.cli.backends.protocol_dead_letters import DeadLetterQuery, DeadLetterStep
from penstock.client import Client
from penstock.core.errors import NotFound
from penstock.core.ids import decode, encode
from penstock.dead_letters import shapes as shapes
from penstock.dead_letters.client.dead_letters import FAR, DeadLetterFilter, Edit


class DatabaseDeadLetters:
    """Use cases for dead letters that access the database directly."""

    def __init__(self, client: Client) -> None:
        self._dead_letters = client.dead_letters

    def page(self, asked: DeadLetterQuery, limit: int) -> list[Shape]:
        """Return dead letters, newest first."""
        found = self._dead_letters.find(_filter(asked), limit=limit)
        return [shapes.dead_letter_shape(row) for row in found]

    def groups(self, asked: DeadLetterQuery, limit: int) -> list[Shape]:
        """Return counts of dead letters by origin and error type."""
        found = self._dead_letters.groups(_filter(asked), limit=limit)
        return [shapes.dead_letter_group_shape(row) for row in found]

    def detail(self, dead_letter_id: str) -> Shape:
        """Return one dead letter with its run or message."""
        return shapes.dead_letter_detail_shape(self._dead_letters.get(self._number(dead_letter_id)))

    def replay(self, dead_letter_id: str, edit: Edit | None) -> Shape:
        """Replay one dead letter, optionally edited; return what it was replayed as."""
        number = self._number(dead_letter_id)
        new_id = self._dead_letters.replay(number, edit)
        return {"dead_letter_id": encode("dl", number), "replayed_as": new_id}

    def replay_matching(self, asked: DeadLetterQuery, step: DeadLetterStep) -> Shape:
        """Replay the next `step.limit` dead letters that match; return the outcomes."""
        done = self._dead_letters.replay_matching(
            _filter(asked),
            limit=step.limit,
            before=FAR if step.before is None else decode("dl", step.before, "before"),
            rate=step.rate,
            start_at=step.start_at,
            is_dry=step.is_dry,
        )
        return shapes.replay_shape(done)

    def discard(self, dead_letter_id: str, reason: str) -> None:
        """Close a dead letter without a replay."""
        self._dead_letters.discard([self._number(dead_letter_id)], reason)

    def _number(self, dead_letter_id: str) -> int:
        if not dead_letter_id.startswith("run_"):
            return decode("dl", dead_letter_id, "id")
        dead_letter = self._dead_letters.of_run(decode("run", dead_letter_id, "id"))
        if dead_letter is None:
            raise NotFound("dead letter", dead_letter_id)
        return dead_letter.dead_letter_id


def _filter(asked: DeadLetterQuery) -> DeadLetterFilter:
    fields = asdict(asked)
    fields["status"] = None if asked.status == "all" else asked.status
    return DeadLetterFilter(**fields)
