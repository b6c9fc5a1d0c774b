"""The keys that sign push tokens: kept in the store, created on first use, two at a time.

Every process of an installation signs with the same key. A rotation adds a new key; the previous
one stays published, so that tokens already issued remain valid. The function that creates a key is
injected, because it needs an optional dependency.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Final

from penstock.access.store.keys import secret_ensure, secret_get, secret_swap
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import Clock
from penstock.core.errors import Conflict
from penstock.db.store import Transactions, Tx
from penstock.egress.oidc import SigningKey

NAME: Final = "push.signing"
KEPT: Final = 2
CACHE_SECONDS: Final = 60.0


class SigningKeys:
    """The installation's signing keys; safe to use from any thread."""

    def __init__(self, store: Transactions, make: Callable[[], SigningKey], clock: Clock) -> None:
        self._store = store
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Sequence[SigningKey] = ()
        self._until = 0.0

    def current(self) -> SigningKey:
        """Return the key to sign with; create it if there is none."""
        with self._lock:
            if not self._known or self._clock.monotonic() >= self._until:
                self._remember(self._load() or self._first())
            return self._known[0]

    def published(self) -> list[SigningKey]:
        """Return the keys that tokens may be signed with, newest first; empty before first use."""
        return list(self._load())

    def rotate(self, actor: str) -> SigningKey:
        """Create a new signing key; every process uses it within a minute."""
        made = self._make()

        def body(tx: Tx) -> list[SigningKey]:
            before = secret_ensure(tx, NAME, _dump([made]))
            keys = _read(before)
            if keys[0].key_id != made.key_id:
                keys = [made, *keys][:KEPT]
                if not secret_swap(tx, NAME, before, _dump(keys)):
                    raise Conflict("The signing keys were changed at the same time: try again.")
            journal_append_many(tx, [Entry("secret", 0, None, "rotated", actor, why=NAME)])
            return keys

        with self._lock:
            self._remember(self._store.write(body))
        return made

    def _load(self) -> list[SigningKey]:
        text = self._store.read(lambda tx: secret_get(tx, NAME))
        return [] if text is None else _read(text)

    def _first(self) -> list[SigningKey]:
        text = _dump([self._make()])
        return _read(self._store.write(lambda tx: secret_ensure(tx, NAME, text)))

    def _remember(self, keys: Sequence[SigningKey]) -> None:
        self._known = keys
        self._until = self._clock.monotonic() + CACHE_SECONDS


def _dump(keys: Sequence[SigningKey]) -> str:
    return json.dumps([{"kid": key.key_id, "pem": key.pem} for key in keys])


def _read(text: str) -> list[SigningKey]:
    return [SigningKey(key_id=one["kid"], pem=one["pem"]) for one in json.loads(text)]
