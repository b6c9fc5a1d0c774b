"""The interface between commands and their two backends.

`DatabaseBackend` implements it on the database, `ApiBackend` through the API. Both return the same
plain JSON (`shapes` of each subject) and raise the same errors, so a command is written once and
prints the same output with either backend. Ids are public ids; times in results are ISO 8601.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core.errors import InvalidInput, PenstockError

if TYPE_CHECKING:
    from penstock.cli.backends.protocol_bus import BusCases
    from penstock.cli.backends.protocol_dead_letters import DeadLetterUseCases

Shape: TypeAlias = dict[str, Any]
Wanted: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
"""Configs to create, as pairs of customer id and fields."""


@contextlib.contextmanager
def rename_field(field: str, elsewhere: Sequence[str]) -> Iterator[None]:
    """Rename the field in InvalidInput errors from one of `elsewhere` to its command-line name."""
    try:
        yield
    except InvalidInput as error:
        if error.field in elsewhere:
            error.args = (error.message.replace(error.field, field, 1),)
            error.field = field
            error.detail["field"] = field
        raise


class UseCases(Protocol):
    """All use cases that commands need."""

    @property
    def where(self) -> str:
        """The database (without its password) or the URL, for display."""
        ...

    @property
    def dead_letters(self) -> DeadLetterUseCases:
        """Use cases for dead letters."""
        ...

    @property
    def bus(self) -> BusCases:
        """Use cases for topics and subscriptions."""
        ...

    def now(self) -> int:
        """Return the current time of the database or server, in micros."""
        ...

    def configs(
        self,
        *,
        customer: str | None,
        pipeline: str | None,
        is_active: bool | None,
        after: str | None,
        limit: int,
    ) -> list[Shape]:
        """Return configs, oldest first."""
        ...

    def config(self, config_id: str) -> Shape:
        """Return one config."""
        ...

    def check(self, wanted: Wanted) -> tuple[int, PenstockError] | None:
        """Return the index and error of the first invalid config; None if all are valid."""
        ...

    def create(self, wanted: Wanted, reason: str) -> list[Shape]:
        """Create configs and return them."""
        ...

    def update(self, config_id: str, fields: Shape, *, version: int | None, reason: str) -> Shape:
        """Change fields of a config; with `version`, fail if it is not the current one."""
        ...

    def delete(self, config_id: str, reason: str) -> None:
        """Delete a config."""
        ...

    def start(self, config_id: str) -> list[str]:
        """Start a config now and return the ids of its runs."""
        ...

    def preview(self, config_id: str, n: int) -> list[Shape]:
        """Return the next `n` occurrences of a config."""
        ...

    def audit(self, customer: str, *, config_id: str | None, limit: int) -> list[Shape]:
        """Return a customer's audit trail, oldest first."""
        ...

    def ledger(self, config_id: str, limit: int) -> list[Shape]:
        """Return occurrences that did not start, newest first."""
        ...

    def pauses(self) -> list[Shape]:
        """Return the pauses in force."""
        ...

    def pause(self, scope: str, subject: str | None, reason: str) -> bool:
        """Pause a scope; return False if it was already paused."""
        ...

    def resume(self, scope: str, subject: str | None, reason: str) -> bool:
        """End a pause; return False if there was none."""
        ...
