"""Use cases of budgets: set, list, lift, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from penstock.access.store.names import NameResolver
from penstock.core.errors import NotFound
from penstock.core.records.record import Changed, Meta
from penstock.db.store import Transactions, Tx
from penstock.usage.from_rows import budget_record
from penstock.usage.records import Budget, BudgetPeriod, BudgetScope, NewBudget
from penstock.usage.rows import BudgetRow
from penstock.usage.store import (
    budget_lift,
    budget_list,
    budget_put,
    budget_record_change,
    budget_remove,
)

__all__ = ["Budgets"]

_Scope = Annotated[BudgetScope, Meta(description="pipeline or customer.")]
_Subject = Annotated[
    str, Meta(description="Name of the pipeline, or id of the customer.", max_length=200)
]
_Period = Annotated[BudgetPeriod, Meta(description="Period of the budget.")]
_Reason = Annotated[
    str, Meta(description="Reason for the action, stored with its record.", max_length=500)
]


class Budgets:
    """Use cases of budgets."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def list(self) -> Sequence[Budget]:
        """List budgets with their use; a client scoped to a customer sees only its own."""

        def body(tx: Tx) -> Sequence[Budget]:
            now = tx.now()
            rows = budget_list(tx, self._names.customer_key(tx, None))
            return [budget_record(row, now) for row in rows]

        return self._store.read(body)

    def set(self, budget: NewBudget) -> Budget:
        """Create or change the budget of a pipeline or customer.

        An alert is opened at `warn_percentage`. With `hard_stop`, runs are held back once the
        amount is used up, until the next period or until the budget is lifted.
        """
        self._names.require_unscoped("budgets")

        def body(tx: Tx) -> Budget:
            subject = self._subject(tx, budget.scope, budget.subject, may_create=True)
            row = BudgetRow(
                scope=budget.scope, subject=subject, period=budget.period, amount=budget.amount,
                warn_percent=budget.warn_percentage, is_hard=budget.is_hard, stopped_at=None,
                lifted_until=None, name=budget.subject,
            )  # fmt: skip
            budget_put(tx, row, self._actor)
            words = f"{budget.amount:g} per {budget.period}"
            words += ", hard stop" if budget.is_hard else ""
            self._record(tx, row, "budget_set", words)
            return budget_record(self._row(tx, row), tx.now())

        return self._store.write(body)

    def lift(
        self,
        scope: _Scope,
        subject: _Subject,
        *,
        period: _Period = "month",
        reason: _Reason = "",
    ) -> Budget:
        """Lift a budget until its period ends, and resume its runs."""
        self._names.require_unscoped("budgets")

        def body(tx: Tx) -> Budget:
            row = self._found(tx, scope, subject, period)
            budget_lift(tx, row, self._actor, reason)
            self._record(tx, row, "budget_lifted", reason)
            return budget_record(self._row(tx, row), tx.now())

        return self._store.write(body)

    def remove(self, scope: _Scope, subject: _Subject, *, period: _Period = "month") -> Changed:
        """Delete a budget, and resume the runs that it held back."""
        self._names.require_unscoped("budgets")

        def body(tx: Tx) -> Changed:
            row = self._found(tx, scope, subject, period)
            budget_remove(tx, row, self._actor)
            self._record(tx, row, "budget_removed", "")
            return Changed(is_changed=True)

        return self._store.write(body)

    def _subject(self, tx: Tx, scope: str, subject: str, *, may_create: bool) -> int:
        if scope == "pipeline":
            return self._names.pipeline(subject, "subject", tx).pipeline_key
        if may_create:
            return self._names.ensure_customer_keys(tx, [subject])[subject]
        number = self._names.customer_key(tx, subject)
        assert number is not None
        return number

    def _found(self, tx: Tx, scope: str, subject: str, period: str) -> BudgetRow:
        number = self._subject(tx, scope, subject, may_create=False)
        wanted = (scope, number, period)
        for row in budget_list(tx):
            if (row.scope, row.subject, row.period) == wanted:
                return row
        raise NotFound("budget", f"{scope} {subject} per {period}")

    def _row(self, tx: Tx, wanted: BudgetRow) -> BudgetRow:
        return next(row for row in budget_list(tx) if row[:3] == wanted[:3])

    def _record(self, tx: Tx, row: BudgetRow, action: str, reason: str) -> None:
        budget_record_change(tx, row, self._actor, action, reason)
