"""Dead letters of deliveries: the message behind one, and delivering it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.core.errors import Conflict
from penstock.core.ids import encode
from penstock.store.api import Store, Tx
from penstock.store.inbox import DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is changed before a replay: a run's parameters, or a message's bytes and attributes."""

    parameters: Mapping[str, Any] | None = None
    data: bytes | None = None
    attributes: Mapping[str, str] | None = None


class LetterMessage(NamedTuple):
    """A message as it was when it died."""

    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str | None
    published_at: int


def message_of(tx: Tx, letter: DeadLetter) -> LetterMessage | None:
    """The message of a dead delivery; None once retention removed it."""
    del tx, letter
    return None


def delivery_again(
    tx: Tx, store: Store, letter: DeadLetter, edit: Edit | None, *, actor: str, at: int | None
) -> str:
    """Deliver a dead delivery's message again, to its own subscription only."""
    del tx, store, edit, actor, at
    name = encode("dl", letter.dead_letter_id)
    raise Conflict(f"{name} is a report that cannot be delivered again: send it anew.")
