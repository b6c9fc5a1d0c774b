"""Classification of exceptions as quota errors or conflicts: a registry that users can extend.

Kinds: `quota`, the resource rejected a request because of a quota or a rate (adaptive limits lower
their capacity), and `conflict`, two concurrent changes collided and a retry helps (limits do not
change). Built in are Google's 403 quotaExceeded and rateLimitExceeded, HTTP 429, and serialization
conflicts of BigQuery and of SQL databases. Exceptions are recognised by their attributes; no client
library is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from penstock.core.error_classification import classify
from penstock.core.errors import LimitTimeout
from penstock.core.retry import ErrorType

Kind: TypeAlias = Literal["quota", "conflict"]
Predicate: TypeAlias = Callable[[BaseException], bool]

_CONFLICT_WORDS: Final = (
    "could not serialize access", "concurrent update", "deadlock detected",
    "transaction is aborted due to concurrent",
)  # fmt: skip
_SERIALIZATION: Final = frozenset({"40001", "40P01"})
_QUOTA_TYPES: Final = frozenset({ErrorType.QUOTA_EXCEEDED, ErrorType.RATE_LIMIT_EXCEEDED})

_rules: list[tuple[Predicate, Kind]] = []


def register(predicate: Predicate, kind: Kind = "quota") -> Callable[[], None]:
    """Register a predicate for errors of a kind; the newest is tried first. Return a function that
    removes it.
    """
    rule = (predicate, kind)
    _rules.insert(0, rule)

    def unregister() -> None:
        if rule in _rules:
            _rules.remove(rule)

    return unregister


def quota_kind(error: BaseException) -> Kind | None:
    """Return whether an exception is a quota error or a conflict; None if it is neither."""
    if isinstance(error, LimitTimeout):
        return None  # raised by Penstock, not by the resource
    for predicate, kind in list(_rules):
        try:
            if predicate(error):
                return kind
        except Exception:  # noqa: S112 - a predicate that fails has not recognised the error
            continue
    if _is_conflict(error):
        return "conflict"
    return "quota" if classify(error) in _QUOTA_TYPES else None


def _is_conflict(error: BaseException) -> bool:
    try:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        text = str(error)[:2000].lower()
    except Exception:
        return False
    return state in _SERIALIZATION or any(word in text for word in _CONFLICT_WORDS)
