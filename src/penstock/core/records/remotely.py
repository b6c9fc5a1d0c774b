"""Remote implementation of use cases that have no route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
REMOTELY: Final = "remotely"


def remotely(form: Callable[..., Any]) -> Callable[[F], F]:
    """Declare the remote implementation of a use case: a function with the same arguments that
    calls other use cases.

    @remotely(lambda runs, run_id: runs.detail(run_id).run)
    def get(self, run_id: RunId) -> Run: ...
    """

    def mark(function: F) -> F:
        setattr(function, REMOTELY, form)
        return function

    return mark
