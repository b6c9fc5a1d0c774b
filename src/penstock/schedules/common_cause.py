"""A common cause: many configs that fail in the same way at the same time.

A config that keeps failing is disabled, because its own parameters or data are wrong. When many
configs of a pipeline fail with the same error type within a window, the cause is elsewhere (the
warehouse, a service, the code), and disabling all of them would only add work. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.clock import HOUR
from penstock.core.retry import ErrorType

CONFIGS_MIN: Final = 5
SHARE_MIN: Final = 0.10
WINDOW_US: Final = HOUR
ELSEWHERE: Final = frozenset(
    {
        ErrorType.RATE_LIMIT_EXCEEDED,
        ErrorType.QUOTA_EXCEEDED,
        ErrorType.SERVICE_UNAVAILABLE,
        ErrorType.TRANSIENT_NETWORK,
        ErrorType.TIMEOUT,
        ErrorType.AUTHENTICATION_FAILED,
        ErrorType.AUTHORIZATION_FAILED,
    }
)
"""Error types that a shared warehouse causes in all pipelines that use it."""


class FailingGroup(NamedTuple):
    """Configs whose runs of one processor failed permanently with one error type in the window.

    failing: number of these configs. active: number of active configs of the pipeline.
    """

    pipeline: str
    processor: str
    error_type: str
    warehouse: str | None
    failing: int
    active: int


def is_common_cause(group: FailingGroup) -> bool:
    """Return whether the number of failing configs points to a cause outside of them."""
    return group.failing >= max(CONFIGS_MIN, SHARE_MIN * group.active)


def cause_key(group: FailingGroup) -> str:
    """Return the dedupe key of the alert: one per warehouse that fails, else one per pipeline."""
    if group.warehouse is not None and group.error_type in ELSEWHERE:
        return f"common_cause:warehouse:{group.warehouse}:{group.error_type}"
    return f"common_cause:pipeline:{group.pipeline}:{group.error_type}"


def cause_message(group: FailingGroup) -> str:
    """Return the text of the alert."""
    where = group.pipeline
    if group.warehouse is not None and group.error_type in ELSEWHERE:
        where = f"{where} (warehouse {group.warehouse})"
    return (
        f"{group.failing:,} configs of {where} fail with {group.error_type}, last in "
        f"{group.processor}: configs are not disabled automatically while this lasts"
    )
