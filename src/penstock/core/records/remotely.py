"""How a use case without its own route works in the remote client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
REMOTELY: Final = "remotely"


def remotely(form: Callable[..., Any]) -> Callable[[F], F]:
    """Declare the remote form of a use case: a function of the same arguments over other use cases.

    @remotely(lambda runs, run_id: runs.detail(run_id).run)
    def get(self, run_id: RunId) -> Run: ...
    """

    def mark(function: F) -> F:
        setattr(function, REMOTELY, form)
        return function

    return mark
