"""Which exceptions mean "too much at once": a registry that users extend.

Kinds: `quota`, the resource refuses because of a quota or a rate (a limit learns from it), and
`conflict`, two changes met and repeating helps (a limit learns nothing). What is known out of the
box are Google's 403 quotaExceeded and rateLimitExceeded, HTTP 429, and serialization conflicts of
BigQuery and of SQL databases. Libraries are known by their attributes, never imported.
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
    """Let a predicate recognise errors; the newest is asked first. Returns how to take it back."""
    rule = (predicate, kind)
    _rules.insert(0, rule)

    def forget() -> None:
        if rule in _rules:
            _rules.remove(rule)

    return forget


def quota_kind(error: BaseException) -> Kind | None:
    """What an exception says about too much at once; None: nothing."""
    if isinstance(error, LimitTimeout):
        return None  # our own waiting, not the resource's word
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
