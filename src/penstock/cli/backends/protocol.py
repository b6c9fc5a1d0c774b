"""What commands can do, whoever does it: one set of questions, answered in the API's shapes.

`Here` does it on the database, `There` through the API of a URL. Both answer with the same plain
JSON (`client.shapes`) and raise the same errors, so that a command is written once and its output
does not tell where the data lives. Ids are public ones, times in answers are ISO 8601.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core.errors import InvalidInput, PenstockError

if TYPE_CHECKING:
    from penstock.cli.backends.limits import LimitCases
    from penstock.cli.backends.protocol_bus import BusCases
    from penstock.cli.backends.protocol_dead_letters import LetterCases
    from penstock.cli.backends.protocol_flows import FlowCases

Shape: TypeAlias = dict[str, Any]
Wanted: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
"""Configs to create: whose, and what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAsked:
    """Which runs a list shows; times in micros."""

    customer: str | None = None
    pipeline: str | None = None
    state: str | None = None
    since: int | None = None
    until: int | None = None
    before: str | None = None
    limit: int = 50


@contextlib.contextmanager
def named(field: str, elsewhere: Sequence[str]) -> Iterator[None]:
    """Name a field in errors as the command line does, whatever it is called elsewhere."""
    try:
        yield
    except InvalidInput as error:
        if error.field in elsewhere:
            error.args = (error.message.replace(error.field, field, 1),)
            error.field = field
            error.detail["field"] = field
        raise


class UseCases(Protocol):
    """Everything commands ask for."""

    @property
    def where(self) -> str:
        """The database or the URL, as people may see it."""
        ...

    @property
    def flows(self) -> FlowCases:
        """The use cases about flows and gates."""
        ...

    @property
    def letters(self) -> LetterCases:
        """The use cases about dead letters."""
        ...

    @property
    def bus(self) -> BusCases:
        """The use cases about topics and subscriptions."""
        ...

    @property
    def limits(self) -> LimitCases:
        """The use cases about limits."""
        ...

    def now(self) -> int:
        """The time over there, in micros."""
        ...

    def runs(self, asked: RunsAsked) -> list[Shape]:
        """Runs, live ones first, newest first."""
        ...

    def run(self, run_id: str) -> Shape:
        """A run with its attempts, journal and progress."""
        ...

    def submit(self, customer: str, wanted: Shape, key: str | None) -> Shape:
        """Create a run; repeating it with the same key gives the same run."""
        ...

    def cancel(self, run_id: str, reason: str) -> str:
        """Cancel a run: "cancelled", or "asked" when its holder has to stop."""
        ...

    def retry(self, run_id: str) -> str:
        """Run an ended run again; the new run's id."""
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
        """Configs, oldest first."""
        ...

    def config(self, config_id: str) -> Shape:
        """One config."""
        ...

    def check(self, wanted: Wanted) -> tuple[int, PenstockError] | None:
        """The first config that would be refused (its place, and why); None when none would."""
        ...

    def create(self, wanted: Wanted, reason: str) -> list[Shape]:
        """Create configs."""
        ...

    def update(self, config_id: str, fields: Shape, *, version: int | None, reason: str) -> Shape:
        """Change a config."""
        ...

    def delete(self, config_id: str, reason: str) -> None:
        """Delete a config."""
        ...

    def start(self, config_id: str) -> list[str]:
        """Start a config now; the ids of its runs."""
        ...

    def preview(self, config_id: str, n: int) -> list[Shape]:
        """The next starts of a config."""
        ...

    def audit(self, customer: str, *, config_id: str | None, limit: int) -> list[Shape]:
        """A customer's audit chain, oldest first."""
        ...

    def ledger(self, config_id: str, limit: int) -> list[Shape]:
        """Slots that did not start, newest first."""
        ...

    def pipelines(self) -> list[Shape]:
        """Registered pipelines, by name."""
        ...

    def pauses(self) -> list[Shape]:
        """Pauses in force."""
        ...

    def pause(self, scope: str, subject: str | None, reason: str) -> bool:
        """Stop starting; False when it was so before."""
        ...

    def resume(self, scope: str, subject: str | None, reason: str) -> bool:
        """Lift a pause; False when there was none."""
        ...

    def alerts(self, *, state: str, customer: str | None, limit: int) -> list[Shape]:
        """Alerts, newest first; state may be `all`."""
        ...

    def overview(self) -> Shape:
        """What is going on, and what ended today."""
        ...

    def sessions(self) -> list[Shape]:
        """Live processes."""
        ...

    def keys(self, *, customer: str | None, with_revoked: bool, limit: int) -> list[Shape]:
        """API keys, oldest first, without their secrets."""
        ...

    def key_create(self, wanted: Shape) -> Shape:
        """Make a key; `expires` is a duration. The answer shows it once."""
        ...

    def key_rotate(self, key_id: str, overlap: str) -> Shape:
        """Give a key a new secret, shown once."""
        ...

    def key_revoke(self, key_id: str, reason: str) -> bool:
        """End a key; False when it was revoked before."""
        ...
