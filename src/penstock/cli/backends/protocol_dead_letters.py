"""What commands about dead letters can do, whoever does it; see `cli.usecases`.

`HereLetters` does it on the database, `ThereLetters` through the API of a URL; both answer with the
same plain JSON. A letter is named by its own id, or by its run's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.cli.backends.protocol import Shape
from penstock.dead_letters.client.deliveries import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersAsked:
    """Which dead letters; times in micros."""

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
class Step:
    """One step of a replay by filter; ids and times as the answer before gave them."""

    limit: int = 100
    rate: float | None = None
    before: str | None = None
    start_at: int | None = None
    is_dry: bool = False


class LetterCases(Protocol):
    """Everything commands ask about dead letters."""

    def page(self, asked: LettersAsked, limit: int) -> list[Shape]:
        """Dead letters, newest first."""
        ...

    def groups(self, asked: LettersAsked, limit: int) -> list[Shape]:
        """Dead letters by origin and kind of error."""
        ...

    def detail(self, letter_id: str) -> Shape:
        """One in full."""
        ...

    def replay(self, letter_id: str, edit: Edit | None) -> Shape:
        """Try one again, as it is or edited."""
        ...

    def replay_matching(self, asked: LettersAsked, step: Step) -> Shape:
        """A step of a replay by filter."""
        ...

    def discard(self, letter_id: str, reason: str) -> None:
        """Give one up."""
        ...
