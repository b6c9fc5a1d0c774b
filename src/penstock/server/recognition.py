"""Recognition of known callers from the headers of a request, before any lookup.

Requests of known callers start immediately; others start at a bounded rate
(`overload.connections`). Only the order of requests depends on it: every key and token is still
checked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from penstock.server.auth import KeyCache, is_scheduler
from penstock.server.overload.connections import Standing
from penstock.server.routes import PageSite

SENDERS_MAX: Final = 1_000


class Recognizer:
    """Knows the keys, the scheduler token and the push tokens that were valid before."""

    def __init__(
        self,
        keys: KeyCache,
        scheduler_token: str,
        site: PageSite | None = None,
    ) -> None:
        """`site` looks up the sessions of the dashboard."""
        self._keys = keys
        self._site = site
        self._scheduler_token = scheduler_token
        self._senders: OrderedDict[str, None] = OrderedDict()

    def __call__(self, headers: Mapping[bytes, bytes]) -> Standing:
        """Return the standing of a request by its headers."""
        token = headers.get(b"x-scheduler-token")
        if token is not None and is_scheduler(token.decode("latin-1"), self._scheduler_token):
            return Standing.KNOWN
        text = _bearer(headers)
        if not text:
            is_visitor = self._site is not None and self._site.is_known(headers)
            return Standing.KNOWN if is_visitor else Standing.NONE
        return Standing.KNOWN if text in self._senders else self._keys.standing(text)

    def caller(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the id of a request's key if it was valid before, else an empty text."""
        known = self._keys.cached(_bearer(headers))
        return "" if known is None or known.caller is None else known.caller.key

    def is_worker(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether the worker fast path accepts the key: it is not bound to a customer."""
        known = self._keys.cached(_bearer(headers))
        return known is not None and known.caller is not None and known.caller.customer is None

    def add_sender(self, authorization: str) -> None:
        """Remember the token of a push that was verified."""
        token = authorization.partition(" ")[2].strip()
        self._senders[token] = None
        self._senders.move_to_end(token)
        if len(self._senders) > SENDERS_MAX:
            self._senders.popitem(last=False)


def _bearer(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"authorization", b"").partition(b" ")[2].strip().decode("latin-1")
