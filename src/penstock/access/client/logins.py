"""Use cases of the dashboard's sessions: open, find, list, close.

A session of a key acts as the key: it has the key's role and customer, and ends with the key and
with the secret it was opened with. A session of a person has the role that the settings assign.
Both end after 12 hours or, for an admin, after 30 minutes of inactivity.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.access import api_keys
from penstock.access.api_keys import KeyState, Principal, Role
from penstock.access.from_rows import state_at
from penstock.access.store.keys import KeyRow, key_get
from penstock.access.store.logins import (
    LoginRow,
    login_delete,
    login_get,
    login_list,
    login_put,
    login_touch,
)
from penstock.access.store.names import NameResolver
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.core.ids import RandomBytes, new_secret
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx

LIFETIME_US: Final = 12 * HOUR
ADMIN_IDLE_US: Final = 30 * MINUTE
ID_LENGTH: Final = 16
"""Number of characters of a token's hash that identify its session in a list."""
TEXT_MAX: Final = 200


class OpenedLogin(NamedTuple):
    """A new session: the token for its cookie, which is not stored, and its end time."""

    token: str
    principal: Principal
    seconds: float


class Origin(NamedTuple):
    """Address and browser of a session, shown in the list of sessions."""

    address: str = ""
    agent: str = ""


class OpenSession(NamedTuple):
    """A session of the dashboard that has not ended."""

    session_id: str
    address: str
    agent: str
    opened_at: int
    seen_at: int
    expires_at: int
    is_current: bool


class Logins:
    """Use cases of the dashboard's sessions. A client scoped to a customer cannot use them."""

    def __init__(
        self, store: Transactions, names: NameResolver, random_bytes: RandomBytes | None = None
    ) -> None:
        self._store = store
        self._names = names
        self._random = random_bytes
        self.lifetime_us = LIFETIME_US
        """How long a session lasts; a simulation, whose clock runs fast, sets it."""

    def open(self, key: str, origin: Origin = Origin()) -> OpenedLogin | None:  # noqa: B008
        """Open a session for a key; None if the key is not valid or may not read.

        key: the API key, as it was shown when it was created. origin: where it is opened.
        """
        self._names.require_unscoped("sessions of the dashboard")
        parsed = api_keys.parse(key)
        token = self._new_token()

        def body(tx: Tx) -> OpenedLogin | None:
            row = None if parsed is None else key_get(tx, parsed.key_id)
            if parsed is None or row is None:
                return None
            secret_hash = api_keys.hash_secret(parsed.secret)
            principal = _principal(row, secret_hash, tx.now())
            if principal is None or principal.role is Role.WORKER:
                return None
            login = LoginRow(
                token_hash=api_keys.hash_secret(token),
                key_id=row.key_id,
                secret_hash=secret_hash,
                person=None,
                role=None,
                customer_id=None,
                address=origin.address[:TEXT_MAX],
                agent=origin.agent[:TEXT_MAX],
            )
            expires_at = login_put(tx, login, self.lifetime_us)
            _note(tx, row.key_id, row.customer_key, principal, "logged_in")
            return OpenedLogin(token, principal, (expires_at - tx.now()) / SECOND)

        return self._store.write(body)

    def open_person(
        self,
        person: str,
        role: Role,
        customer: str | None = None,
        origin: Origin = Origin(),  # noqa: B008
    ) -> OpenedLogin:
        """Open a session for a person whom an identity provider has authenticated.

        person: e-mail address, under which changes are recorded. role and customer: what the
        settings allow; a customer must exist. origin: where it is opened.
        """
        self._names.require_unscoped("sessions of the dashboard")
        if role is Role.WORKER:
            raise InvalidInput("role", "viewer, operator or admin", role.value)
        token = self._new_token()
        number = None if customer is None else self._names.lookup_customer_key(customer)
        principal = Principal(
            key_id=0, name=person, role=role, customer_id=customer, is_person=True
        )

        def body(tx: Tx) -> OpenedLogin:
            login = LoginRow(
                token_hash=api_keys.hash_secret(token),
                key_id=0,
                secret_hash="",
                person=person,
                role=role.value,
                customer_id=customer,
                address=origin.address[:TEXT_MAX],
                agent=origin.agent[:TEXT_MAX],
            )
            expires_at = login_put(tx, login, self.lifetime_us)
            _note(tx, 0, number, principal, "logged_in")
            return OpenedLogin(token, principal, (expires_at - tx.now()) / SECOND)

        return self._store.write(body)

    def list_own(self, token: str) -> list[OpenSession]:
        """Return the open sessions of the key or person of a session, newest first.

        token: the secret of the session's cookie.
        """
        self._names.require_unscoped("sessions of the dashboard")
        token_hash = api_keys.hash_secret(token)

        def body(tx: Tx) -> list[OpenSession]:
            own = login_get(tx, token_hash)
            found = [] if own is None else login_list(tx, own)
            return [
                OpenSession(
                    session_id=row.token_hash[:ID_LENGTH],
                    address=row.address,
                    agent=row.agent,
                    opened_at=row.created_at,
                    seen_at=row.seen_at,
                    expires_at=row.expires_at,
                    is_current=row.token_hash == token_hash,
                )
                for row in found
            ]

        return self._store.read(body)

    def close_own(self, token: str, session_id: str) -> bool:
        """End another session of the same key or person; return False if there is none.

        token: the secret of the session's cookie. session_id: id of the session to end.
        """
        self._names.require_unscoped("sessions of the dashboard")
        token_hash = api_keys.hash_secret(token)

        def body(tx: Tx) -> bool:
            own = login_get(tx, token_hash)
            found = [] if own is None else login_list(tx, own)
            ended = [row for row in found if row.token_hash[:ID_LENGTH] == session_id]
            for row in ended:
                self._end(tx, row)
            return bool(ended)

        return self._store.write(body)

    def find(self, token: str, *, is_use: bool = True) -> Principal | None:
        """Return the principal of a session; None if it has ended or never existed.

        token: the secret of the session's cookie. is_use: whether a person made the request, which
        keeps an admin's session open; the automatic refresh of a page does not count.
        """
        self._names.require_unscoped("sessions of the dashboard")
        token_hash = api_keys.hash_secret(token)

        def body(tx: Tx) -> tuple[Principal | None, bool]:
            login = login_get(tx, token_hash)
            principal = None if login is None else _principal_of(tx, login)
            if login is None or principal is None:
                return None, False
            idle = tx.now() - login.seen_at
            if principal.role is Role.ADMIN and idle > ADMIN_IDLE_US:
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
            login = login_get(tx, api_keys.hash_secret(token))
            if login is not None:
                self._end(tx, login)
            return login is not None

        return self._store.write(body)

    def _end(self, tx: Tx, login: LoginRow) -> None:
        principal = _principal_of(tx, login)
        if login_delete(tx, login.token_hash) is not None and principal is not None:
            row = key_get(tx, login.key_id)
            customer = None if row is None else row.customer_key
            _note(tx, login.key_id, customer, principal, "logged_out")

    def _new_token(self) -> str:
        return new_secret() if self._random is None else new_secret(self._random)


def _principal_of(tx: Tx, login: LoginRow) -> Principal | None:
    """Return the principal of a session; None if its key has ended."""
    if login.person is not None and login.role is not None:
        return Principal(
            key_id=0,
            name=login.person,
            role=Role(login.role),
            customer_id=login.customer_id,
            valid_seconds=(login.expires_at - tx.now()) / SECOND,
            is_person=True,
        )
    row = key_get(tx, login.key_id)
    return None if row is None else _principal(row, login.secret_hash, tx.now())


def _principal(row: KeyRow, secret_hash: str, now: int) -> Principal | None:
    """Return the principal of a key if the given secret is valid, else None."""
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


def _note(
    tx: Tx, key_id: int, customer: CustomerKey | None, principal: Principal, action: str
) -> None:
    journal_append_many(tx, [Entry("key", key_id, customer, action, principal.actor)])
