"""The use cases of the commands for dead letters; see `cli.backends.protocol`.

`DatabaseDeadLetters` implements them on the database, `HttpDeadLetters` through the API; both
return the same plain JSON. A dead letter is identified by its own id or by the id of its run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.cli.backends.protocol import Shape
from penstock.dead_letters.client.deliveries import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """Filter for dead letters; times in micros."""

    status: str = "open"
    kind: str | None = None
    customer: str | None = None
    subscription: str | None = None
    topic: str | None = None
    pipeline: str | None = None
    processor: str | None = None
    partition: str | None = None
    correlation_id: str | None = None
    error_type: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStep:
    """One step of a replay by filter; `before` and `start_at` come from the previous response."""

    limit: int = 100
    rate: float | None = None
    before: str | None = None
    start_at: int | None = None
    is_dry: bool = False


class DeadLetterUseCases(Protocol):
    """Use cases for dead letters."""

    def page(self, asked: DeadLetterQuery, limit: int) -> list[Shape]:
        """Return dead letters, newest first."""
        ...

    def groups(self, asked: DeadLetterQuery, limit: int) -> list[Shape]:
        """Return counts of dead letters by origin and error type."""
        ...

    def detail(self, dead_letter_id: str) -> Shape:
        """Return one dead letter with its run or message."""
        ...

    def replay(self, dead_letter_id: str, edit: Edit | None) -> Shape:
        """Replay one dead letter, optionally edited; return what it was replayed as."""
        ...

    def replay_matching(self, asked: DeadLetterQuery, step: DeadLetterStep) -> Shape:
        """Replay the next `step.limit` dead letters that match; return the outcomes."""
        ...

    def discard(self, dead_letter_id: str, reason: str) -> None:
        """Close a dead letter without a replay."""
        ...
