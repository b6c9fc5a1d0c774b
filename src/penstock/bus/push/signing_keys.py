"""The keys that sign push tokens: created on first use and kept in the store, at most two.

With a key file they are encrypted, so that the database alone cannot sign tokens; keys that were
stored before are encrypted when they are next read. Every process of an installation signs with the
same key. A rotation adds a new key; the previous one stays published, so that tokens already issued
remain valid. The function that creates a key is injected, because it needs an optional dependency.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.access.store.keys import secret_ensure, secret_get, secret_swap
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import Clock
from penstock.core.errors import Conflict, SettingsError
from penstock.db.store import Transactions, Tx
from penstock.egress.oidc import SigningKey

NAME: Final = "push.signing"
KEPT: Final = 2
CACHE_SECONDS: Final = 60.0


class KeyCipher(Protocol):
    """Encrypts texts with a key that is not in the store."""

    def encrypt(self, text: str) -> str:
        """Return the encrypted text, which does not begin with a bracket."""
        ...

    def decrypt(self, text: str) -> str:
        """Return the text; raise SettingsError if it was encrypted with another key."""
        ...


class SigningKeys:
    """The installation's signing keys; safe to use from any thread."""

    def __init__(
        self,
        store: Transactions,
        make: Callable[[], SigningKey],
        clock: Clock,
        cipher: KeyCipher | None = None,
    ) -> None:
        """Without a `cipher` the keys are stored unencrypted."""
        self._store = store
        self._cipher = cipher
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
        """Return the keys that verify issued tokens, newest first; empty before first use."""
        return list(self._load())

    def rotate(self, actor: str) -> SigningKey:
        """Create a new signing key; every process uses it within a minute."""
        made = self._make()
        first = self._dump([made])

        def body(tx: Tx) -> list[SigningKey]:
            before = secret_ensure(tx, NAME, first)
            if before == first:
                keys = [made]
            else:
                try:
                    keys = [made, *self._read(before)][:KEPT]
                except SettingsError:  # the key file is lost: the old keys cannot be published
                    keys = [made]
                if not secret_swap(tx, NAME, before, self._dump(keys)):
                    raise Conflict("The signing keys were changed at the same time: try again.")
            journal_append_many(tx, [Entry("secret", 0, None, "rotated", actor, why=NAME)])
            return keys

        with self._lock:
            self._remember(self._store.write(body))
        return made

    def _load(self) -> list[SigningKey]:
        text = self._store.read(lambda tx: secret_get(tx, NAME))
        if text is None:
            return []
        keys = self._read(text)
        if self._cipher is not None and text.startswith("["):
            sealed = self._dump(keys)
            self._store.write(lambda tx: secret_swap(tx, NAME, text, sealed))
        return keys

    def _first(self) -> list[SigningKey]:
        text = self._dump([self._make()])
        return self._read(self._store.write(lambda tx: secret_ensure(tx, NAME, text)))

    def _remember(self, keys: Sequence[SigningKey]) -> None:
        self._known = keys
        self._until = self._clock.monotonic() + CACHE_SECONDS

    def _dump(self, keys: Sequence[SigningKey]) -> str:
        text = json.dumps([{"kid": key.key_id, "pem": key.pem} for key in keys])
        return text if self._cipher is None else self._cipher.encrypt(text)

    def _read(self, text: str) -> list[SigningKey]:
        if not text.startswith("["):
            if self._cipher is None:
                raise SettingsError(
                    "encryption_key_file", "the key file that encrypted the signing key",
                    "nothing", "Set PENSTOCK_ENCRYPTION_KEY_FILE.",
                )  # fmt: skip
            text = self._cipher.decrypt(text)
        return [SigningKey(key_id=one["kid"], pem=one["pem"]) for one in json.loads(text)]
