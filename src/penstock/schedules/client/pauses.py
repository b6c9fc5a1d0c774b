"""Use cases of pauses: pause or resume a config, a customer, a pipeline, or everything.

Each change is written to the journal and, if it concerns a customer, to the audit trail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias, get_args

from penstock.access.store.names import NameResolver
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.core.naming import CustomerKey
from penstock.core.records.record import Meta
from penstock.db.store import Transactions, Tx
from penstock.runs.store.admission import BUDGET, pause_list
from penstock.schedules.from_rows import pause_record
from penstock.schedules.hooks import on_resumed
from penstock.schedules.records import Pause, PauseResult, PauseScope
from penstock.schedules.store.configs import config_get
from penstock.schedules.store.pauses import PauseChange, pause_begin, pause_end

__all__ = ["Pauses"]

SCOPES: tuple[str, ...] = get_args(PauseScope)

_Scope: TypeAlias = Annotated[
    PauseScope,
    Meta(description="Whether everything, a customer, a pipeline or a config is paused."),
]
_Subject: TypeAlias = Annotated[
    str | None,
    Meta(description="Customer, pipeline or config concerned; omit it for scope `all`."),
]
_Reason: TypeAlias = Annotated[
    str, Meta(description="Reason for the action, stored with its record.", max_length=500)
]


class Pauses:
    """Use cases of pauses."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def list(self) -> Sequence[Pause]:
        """List active pauses; a client scoped to a customer sees only those of its customer."""
        rows = self._store.read(lambda tx: pause_list(tx, self._names.customer_key(tx, None)))
        return [pause_record(row) for row in rows]

    def pause(
        self, scope: _Scope, subject: _Subject = None, *, reason: _Reason = ""
    ) -> PauseResult:
        """Pause everything, a customer, a pipeline or a config. Active runs continue."""
        return self._store.write(lambda tx: self._change(tx, scope, subject, reason, is_pause=True))

    def resume(
        self, scope: _Scope, subject: _Subject = None, *, reason: _Reason = ""
    ) -> PauseResult:
        """Lift a pause and release the runs that it held back.

        If a used-up budget holds them back, it is lifted until its period ends; a caller bound to a
        customer may not. If a person had paused as well, the budget holds them back from now on.
        """
        done = self._store.write(
            lambda tx: self._change(tx, scope, subject, reason, is_pause=False)
        )
        self._store.wake(["admit"])
        return done

    def _change(
        self, tx: Tx, scope: str, subject: str | None, reason: str, *, is_pause: bool
    ) -> PauseResult:
        who = self._actor
        number, customer = self._resolve(tx, scope, subject, is_pause)
        change = PauseChange(scope, number, customer, who, reason)
        if is_pause:
            return PauseResult(is_changed=pause_begin(tx, change))
        paused_by = pause_end(tx, change)
        if paused_by is not None and scope in ("customer", "pipeline"):
            if paused_by == BUDGET:
                self._names.require_unscoped("lifting a budget")
            on_resumed(tx, change, paused_by)
        return PauseResult(is_changed=paused_by is not None)

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
            try:
                number = self._names.customer_key(tx, subject)
            except InvalidInput as error:
                raise InvalidInput("subject", error.expected, subject, error.fix) from None
            assert number is not None
            return number, number
        if scope == "pipeline":
            return self._names.pipeline(subject, "subject", tx).pipeline_key, None
        config_id = decode("cfg", subject, "subject")
        config = config_get(tx, config_id, self._names.customer_key(tx, None))
        # A pause outlives the deletion of its config, so that waiting runs can still be resumed.
        if config is None or (is_pause and config.deleted_at is not None):
            raise NotFound("config", encode("cfg", config_id))
        return config_id, config.customer_key
