"""A fake cloud API for the demo's pipelines, with faults that the scenario switches on.

Exceptions look like those of any HTTP client (`status_code`, `retry_after`), so Penstock's default
error classification applies. Responses depend on the request only, so a demo is repeatable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.ids import stable_fraction

if TYPE_CHECKING:
    from penstock import RunContext


class CloudError(Exception):
    """A response with an HTTP error status."""

    def __init__(self, status_code: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"HTTP {status_code}: {message}")
        self.status_code = status_code
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful response: number of billing rows and their cost."""

    rows: int
    cents: int


@dataclass(slots=True)
class Cloud:
    """The fake cloud's state: throttled providers, revoked customers, share of broken calls."""

    throttled_seconds: dict[str, float] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    breaks: float = 0.0
    calls: int = 0
    throttled_calls: int = 0

    def recover(self) -> None:
        """End every incident: all calls succeed again."""
        self.throttled_seconds, self.revoked, self.breaks = {}, set(), 0.0

    def call(self, run: RunContext, provider: str, question: str) -> Answer:
        """Return the response to a request, or raise as the provider would."""
        self.calls += 1
        if run.customer_id in self.revoked:
            raise CloudError(401, f"the credentials of {run.customer_id} were revoked")
        wait = self.throttled_seconds.get(provider, 0.0)
        if wait > 0:
            self.throttled_calls += 1
            # Spread the retry times so that callers do not all retry at the same moment.
            spread = 600 * stable_fraction(f"{run.customer_id}/{run.attempt}")
            raise CloudError(429, f"too many calls to {provider}", wait + spread)
        draw = stable_fraction(f"{run.run_id}/{run.attempt}/{question}")
        if draw < self.breaks:
            raise ConnectionResetError(f"{provider} closed the connection at {question}")
        size = stable_fraction(f"{run.customer_id}/{question}")
        return Answer(rows=20 + int(size * 400), cents=int(size * 100_000))


CLOUD = Cloud()
