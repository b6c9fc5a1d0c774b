"""The error of an invariant that does not hold."""

from __future__ import annotations


class Violation(BaseException):
    """An invariant does not hold.

    Not an Exception, so that no handler of the product catches it.
    """

    def __init__(self, invariant: str, detail: str) -> None:
        self.invariant = invariant
        self.detail = detail
        super().__init__(f"{invariant}: {detail}")
