"""The clouds the demo's pipelines talk to: they answer, unless the scenario made them difficult.

Exceptions look like those of any HTTP client (`status_code`, `retry_after`), so that they are
classified by what Penstock knows out of the box. Answers depend on the question alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.ids import stable_fraction

if TYPE_CHECKING:
    from penstock import RunContext


class CloudError(Exception):
    """An answer with an HTTP status that is not a success."""

    def __init__(self, status_code: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"HTTP {status_code}: {message}")
        self.status_code = status_code
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Answer:
    """What a cloud answers."""

    rows: int
    cents: int


@dataclass(slots=True)
class Cloud:
    """The clouds' mood: who is throttled, whose credentials are bad, how often a call breaks."""

    throttled_seconds: dict[str, float] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    breaks: float = 0.0
    calls: int = 0

    def call(self, run: RunContext, provider: str, question: str) -> Answer:
        """Answer a question, or raise as the provider would."""
        self.calls += 1
        if run.customer_id in self.revoked:
            raise CloudError(401, f"the credentials of {run.customer_id} were revoked")
        wait = self.throttled_seconds.get(provider, 0.0)
        if wait > 0:
            # Callers are told different times, or they would all come back at the same moment.
            spread = 600 * stable_fraction(f"{run.customer_id}/{run.attempt}")
            raise CloudError(429, f"{provider} has had enough calls", wait + spread)
        luck = stable_fraction(f"{run.run_id}/{run.attempt}/{question}")
        if luck < self.breaks:
            raise ConnectionResetError(f"{provider} closed the connection at {question}")
        size = stable_fraction(f"{run.customer_id}/{question}")
        return Answer(rows=20 + int(size * 400), cents=int(size * 100_000))


CLOUD = Cloud()
