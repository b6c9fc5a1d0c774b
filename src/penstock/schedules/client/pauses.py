"""Use cases of pauses: pause or resume a config, a customer, a pipeline, or everything.

Each change is written to the journal and, if it concerns a customer, to the audit trail.
"""

from __future__ import annotations

from typing import Literal

from penstock.access.store.names import NameResolver
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx
from penstock.runs.store.admission import Pause, pause_drop, pause_list, pause_put
from penstock.schedules.store.configs import Change, audit_append, config_get

Scope = Literal["all", "customer", "pipeline", "config"]
SCOPES: tuple[Scope, ...] = ("all", "customer", "pipeline", "config")


class Pauses:
    """Use cases of pauses."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def pause(
        self, scope: str, subject: str | None, *, reason: str = "", actor: str | None = None
    ) -> bool:
        """Stop starting the runs the scope covers; return False if it was already paused."""
        who = actor or self._actor
        return self._store.write(lambda tx: self._change(tx, scope, subject, who, reason, True))

    def resume(
        self, scope: str, subject: str | None, *, reason: str = "", actor: str | None = None
    ) -> bool:
        """Lift a pause; return False if there was none."""
        who = actor or self._actor
        done = self._store.write(lambda tx: self._change(tx, scope, subject, who, reason, False))
        self._store.wake(["admit"])
        return done

    def in_force(self) -> list[Pause]:
        """Return all pauses in force; a scoped client sees only those of its customer."""
        return self._store.read(lambda tx: pause_list(tx, self._names.customer_key(tx, None)))

    def _change(
        self, tx: Tx, scope: str, subject: str | None, who: str, reason: str, is_pause: bool
    ) -> bool:
        number, customer = self._resolve(tx, scope, subject, is_pause)
        if is_pause:
            changed = pause_put(tx, scope, number, who, reason)
        else:
            changed = pause_drop(tx, scope, number)
        if not changed:
            return False
        action = "paused" if is_pause else "resumed"
        journal_append_many(tx, [Entry(scope, number, customer, action, who, why=reason or None)])
        if customer is not None:
            config_id = number if scope == "config" else None
            audit_append(tx, [Change(customer, action.upper(), config_id, who, reason)])
        return True

    def _resolve(
        self, tx: Tx, scope: str, subject: str | None, is_pause: bool
    ) -> tuple[int, CustomerKey | None]:
        """Return the key of the subject and the key of its customer, if it has one."""
        if scope not in SCOPES:
            raise InvalidInput("scope", f"one of {', '.join(SCOPES)}", scope)
        if scope in ("all", "pipeline"):
            self._names.require_unscoped(f"pausing and resuming {scope}")
        if scope == "all":
            return 0, None
        if not subject:
            raise InvalidInput("subject", f"the {scope} to pause or resume", subject)
        if scope == "customer":
            number = self._names.customer_key(tx, subject)
            assert number is not None
            return number, number
        if scope == "pipeline":
            return self._names.pipeline(subject, "pipeline", tx).pipeline_key, None
        config_id = decode("cfg", subject)
        config = config_get(tx, config_id, self._names.customer_key(tx, None))
        # A pause outlives the deletion of its config, so that waiting runs can still be resumed.
        if config is None or (is_pause and config.deleted_at is not None):
            raise NotFound("config", encode("cfg", config_id))
        return config_id, config.customer_key
