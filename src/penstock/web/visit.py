"""One request for a page: its caller, address and filters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar

from penstock.access.api_keys import Permission
from penstock.client import Client
from penstock.core.clock import from_datetime, parse_when, to_datetime
from penstock.core.errors import InvalidInput, NotFound, PenstockError, ReadTimeout, StoreError
from penstock.db.store import read_limit
from penstock.server.auth import Caller
from penstock.server.problems import Refused
from penstock.web.live.panel_threads import PanelThreads
from penstock.web.live.shared_reads import SharedReads
from penstock.web.parts import Button, NotePanel, address
from penstock.web.words import clock, duration

T = TypeVar("T")
Other = TypeVar("Other")
log = logging.getLogger(__name__)
VALUE_MAX: Final = 2_000
PAGE_ROWS: Final = 50
SHARED_SECONDS: Final = 30.0
"""Age up to which a page shows the figures of costly reports."""

PANEL_SECONDS: Final = 2.0
"""Time limit for the reads of one panel."""
PAGE_SECONDS: Final = 10.0
"""Time limit for all reads of a page."""


class Once(Generic[T]):
    """A read that several panels of a page need; it is made once, even if it fails."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._made: list[T] = []
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def __call__(self) -> T:
        """Return the result of the read, or raise its error."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._made:
                try:
                    self._made.append(self._read())
                except Exception as error:
                    self._error = error
                    raise
            return self._made[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request for a page, by a person with a session."""

    caller: Caller
    path: str
    path_values: Mapping[str, str]
    query: Mapping[str, str]
    now: datetime
    request_id: str
    form_token: str
    reads: SharedReads
    threads: PanelThreads

    @property
    def client(self) -> Client:
        """The use cases, acting for the person."""
        return self.caller.client

    @property
    def customer(self) -> str | None:
        """The customer that the key is bound to, else the one chosen in the address."""
        return self.caller.customer or self.get("customer")

    @property
    def is_bound(self) -> bool:
        """Whether the person sees one customer only."""
        return self.caller.customer is not None

    @property
    def may_operate(self) -> bool:
        """Whether the person may perform actions."""
        return self.caller.principal.role.has_permission(Permission.OPERATE)

    def require(self, permission: Permission) -> None:
        """Raise Refused if the person's role lacks a permission."""
        role = self.caller.principal.role
        if not role.has_permission(permission):
            raise Refused(403, f"Your role is {role}, which lacks the permission {permission}.")

    def get(self, name: str) -> str | None:
        """Return a value of the query; None if it is absent or empty."""
        return self.query.get(name) or None

    def choice(self, name: str, options: Sequence[str], default: str) -> str:
        """Return a value of the query if it is one of the options, else the default."""
        given = self.query.get(name, "")
        return given if given in options else default

    def here(self, **changed: Any) -> str:
        """Return this page's address with some values changed; None removes one."""
        values = {**self.query, **changed}
        return address(*self.path.strip("/").split("/"), **values)

    def link(self, *path: str, **query: Any) -> str:
        """Return the address of a page that keeps the customer chosen in the address."""
        return address(*path, customer=None if self.is_bound else self.customer, **query)

    def share(self, name: str, read: Callable[[], T], *values: str | int | None) -> T:
        """Return a read that visits with the same access share for half a minute.

        values: all that the read depends on, other than the caller's access.
        """
        caller = self.caller
        key = (name, values, caller.principal.role, caller.customer)
        return self.reads.get(key, SHARED_SECONDS, read)

    def time(self, name: str) -> datetime | None:
        """Return a time of the query, given as such, as a date or as an age; raise InvalidInput."""
        at = parse_when(self.get(name), name, from_datetime(self.now))
        return None if at is None else to_datetime(at)

    def next_page(self, cursor: str | None, **changed: Any) -> str | None:
        """Return the address of the next page of a list; None at its end."""
        return None if cursor is None else self.here(cursor=cursor, **changed)

    def age(self, at: datetime | None) -> str:
        """Return how long ago a time was."""
        return duration(None if at is None else max(self.now - at, timedelta(0)))

    def clock(self, at: datetime | None) -> str:
        """Return a time as a text for a sentence."""
        return "–" if at is None else clock(at, self.now)

    def minute(self, at: datetime | None) -> str:
        """Return a time as a text for a sentence, without seconds."""
        phrase = self.clock(at)
        return f"{phrase[:5]}Z" if len(phrase) == 9 else phrase

    def panel(self, title: str, build: Callable[[], T]) -> T | NotePanel:
        """Return a panel, or a note in its place if it fails or reads for too long, so that the
        rest of the page is shown.
        """
        try:
            with read_limit(PANEL_SECONDS):
                return build()
        except Exception as error:  # only this panel fails
            return NotePanel(
                title=title,
                state="failed",
                text=f"{title} did not load: {self._reason(title, error)}",
                small=f"request {self.request_id}",
                actions=[Button(label="Again", href=self.here(), css="sm")],
            )

    def panels(self, builds: Mapping[str, Callable[[], Any]]) -> list[Any]:
        """Return panels by title, as `panel` does, read at the same time; they are independent."""
        return self.together([partial(self.panel, *one) for one in builds.items()])

    def together(self, reads: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return the results of independent reads, made at the same time."""
        return self.threads.read(reads)

    def optional(self, read: Callable[[], T], otherwise: Other) -> T | Other:
        """Return a read for the head of the page, or another value if it fails or takes too long.

        Raise NotFound, InvalidInput and Refused, which concern the whole page.
        """
        try:
            with read_limit(PANEL_SECONDS):
                return read()
        except (NotFound, InvalidInput, Refused):
            raise
        except Exception as error:  # the panels say what did not load
            self._reason("head", error)
            return otherwise

    def _reason(self, title: str, error: Exception) -> str:
        """Return why a panel failed; an unknown error is logged."""
        if isinstance(error, ReadTimeout):
            return f"it took longer than {PANEL_SECONDS:g} s."
        if isinstance(error, StoreError):
            return "the database does not respond."
        if isinstance(error, PenstockError):
            return error.message
        if isinstance(error, Refused):
            return error.detail
        log.error(
            "panel %r of %s failed (request %s)", title, self.path, self.request_id, exc_info=error
        )
        return "an internal error, which the server has logged under this request."
