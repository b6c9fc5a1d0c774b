"""Use cases of the dashboard's sessions: open with an API key, find, close.

A session acts as its key: it has the key's role and customer, and ends with the key, with the
secret it was opened with, after 12 hours, or, for an admin, after 30 minutes without a request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.access import api_keys
from penstock.access.api_keys import KeyState, Principal, Role
from penstock.access.from_rows import state_at
from penstock.access.store.keys import KeyRow, key_get
from penstock.access.store.logins import login_delete, login_get, login_put, login_touch
from penstock.access.store.names import NameResolver
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.ids import RandomBytes, new_secret
from penstock.db.store import Transactions, Tx

LIFETIME_US: Final = 12 * HOUR
ADMIN_IDLE_US: Final = 30 * MINUTE


class OpenedLogin(NamedTuple):
    """A new session: the token of its cookie, which is not stored, and when it ends."""

    token: str
    principal: Principal
    seconds: float


class Logins:
    """Use cases of the dashboard's sessions. A client scoped to a customer cannot use them."""

    def __init__(
        self, store: Transactions, names: NameResolver, random_bytes: RandomBytes | None = None
    ) -> None:
        self._store = store
        self._names = names
        self._random = random_bytes

    def open(self, key: str) -> OpenedLogin | None:
        """Open a session for a key; None if the key is not valid or may not read.

        key: the API key, as it was shown when it was created.
        """
        self._names.require_unscoped("sessions of the dashboard")
        parsed = api_keys.parse(key)
        token = new_secret() if self._random is None else new_secret(self._random)

        def body(tx: Tx) -> OpenedLogin | None:
            row = None if parsed is None else key_get(tx, parsed.key_id)
            if parsed is None or row is None:
                return None
            secret_hash = api_keys.hash_secret(parsed.secret)
            principal = _principal(row, secret_hash, tx.now())
            if principal is None or principal.role is Role.WORKER:
                return None
            expires_at = login_put(
                tx,
                token_hash=api_keys.hash_secret(token),
                key_id=row.key_id,
                secret_hash=secret_hash,
                lifetime_us=LIFETIME_US,
            )
            _note(tx, row, "logged_in")
            return OpenedLogin(token, principal, (expires_at - tx.now()) / SECOND)

        return self._store.write(body)

    def find(self, token: str, *, is_use: bool = True) -> Principal | None:
        """Return whom a session acts for; None if it has ended or never existed.

        token: the secret of the session's cookie. is_use: whether a person does something, which
        keeps an admin's session open; a page that refreshes itself does not.
        """
        self._names.require_unscoped("sessions of the dashboard")
        token_hash = api_keys.hash_secret(token)

        def body(tx: Tx) -> tuple[Principal | None, bool]:
            login = login_get(tx, token_hash)
            row = None if login is None else key_get(tx, login.key_id)
            if login is None or row is None:
                return None, False
            now = tx.now()
            principal = _principal(row, login.secret_hash, now)
            idle = now - login.seen_at
            if principal is None or (principal.role is Role.ADMIN and idle > ADMIN_IDLE_US):
                return None, False
            return principal, idle > MINUTE

        principal, is_old = self._store.read(body)
        if is_old and is_use:
            self._store.write(lambda tx: login_touch(tx, token_hash))
        return principal

    def close(self, token: str) -> bool:
        """End a session; return False if there is none.

        token: the secret of the session's cookie.
        """
        self._names.require_unscoped("sessions of the dashboard")

        def body(tx: Tx) -> bool:
            key_id = login_delete(tx, api_keys.hash_secret(token))
            row = None if key_id is None else key_get(tx, key_id)
            if row is not None:
                _note(tx, row, "logged_out")
            return key_id is not None

        return self._store.write(body)


def _principal(row: KeyRow, secret_hash: str, now: int) -> Principal | None:
    """Return whom a key stands for if that secret of it is valid, else None."""
    state = state_at(row, now)
    is_current = secret_hash == row.hash
    is_previous = secret_hash == row.previous_hash and state is KeyState.ROTATING
    if state in (KeyState.REVOKED, KeyState.EXPIRED) or not (is_current or is_previous):
        return None
    ends = [end for end in (row.expires_at, None if is_current else row.previous_until) if end]
    return Principal(
        key_id=row.key_id,
        name=row.name,
        role=Role(row.role),
        customer_id=row.customer_id,
        rate=row.rate,
        valid_seconds=None if not ends else (min(ends) - now) / SECOND,
    )


def _note(tx: Tx, row: KeyRow, action: str) -> None:
    entry = Entry("key", row.key_id, row.customer_key, action, f"key:{row.name}")
    journal_append_many(tx, [entry])
