"""The interface between commands and their two backends.

`DatabaseBackend` implements it on the database, `ApiBackend` through the API. Both return the same
plain JSON (`shapes` of each subject) and raise the same errors, so a command is written once and
prints the same output with either backend. Ids are public ids; times in results are ISO 8601.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core.errors import InvalidInput, PenstockError

if TYPE_CHECKING:
    from penstock.cli.backends.protocol_flows import FlowCases

Shape: TypeAlias = dict[str, Any]
Wanted: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
"""Configs to create, as pairs of customer id and fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Filter for a list of runs; times in micros."""

    customer: str | None = None
    pipeline: str | None = None
    state: str | None = None
    since: int | None = None
    until: int | None = None
    before: str | None = None
    limit: int = 50


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
    def flows(self) -> FlowCases:
        """Use cases for flows and gates."""
        ...

    def now(self) -> int:
        """Return the current time of the database or server, in micros."""
        ...

    def runs(self, asked: RunQuery) -> list[Shape]:
        """Return runs: unfinished ones first, then newest first."""
        ...

    def run(self, run_id: str) -> Shape:
        """Return a run with its attempts, journal and progress."""
        ...

    def submit(self, customer: str, wanted: Shape, key: str | None) -> Shape:
        """Create a run; a repeated idempotency key returns the same run."""
        ...

    def cancel(self, run_id: str, reason: str) -> str:
        """Cancel a run; return "cancelled", or "asked" if its worker still has to stop it."""
        ...

    def retry(self, run_id: str) -> str:
        """Run a finished run again and return the new run's id."""
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

    def pipelines(self) -> list[Shape]:
        """Return registered pipelines, by name."""
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

    def alerts(self, *, state: str, customer: str | None, limit: int) -> list[Shape]:
        """Return alerts, newest first; `state` may be `all`."""
        ...

    def overview(self) -> Shape:
        """Return queue counts and today's totals."""
        ...

    def sessions(self) -> list[Shape]:
        """Return the sessions of live processes."""
        ...

    def keys(self, *, customer: str | None, with_revoked: bool, limit: int) -> list[Shape]:
        """Return API keys, oldest first, without their secrets."""
        ...

    def key_create(self, wanted: Shape) -> Shape:
        """Create a key and return it with its secret; `expires` is a duration."""
        ...

    def key_rotate(self, key_id: str, overlap: str) -> Shape:
        """Replace a key's secret and return the new one."""
        ...

    def key_revoke(self, key_id: str, reason: str) -> bool:
        """Revoke a key; return False if it was already revoked."""
        ...
