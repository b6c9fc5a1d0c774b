"""Gates: check, history, what-if; overrides and interventions.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.gates import (
    BacktestIn,
    BacktestOut,
    CheckIn,
    CheckOut,
    DecisionPage,
    InterventionOut,
    InterventionPage,
    ListDecisionsQuery,
    ListInterventionsQuery,
    ListOverridesQuery,
    OverrideIn,
    OverrideOut,
    OverridePage,
    OverrideRevokeIn,
    ResolveIn,
    WhatIfIn,
    WhatIfOut,
)
from penstock.remote.shapes.topics import Done
from penstock.remote.transport import Transport, quoted


class GatesApi:
    """Gates: check, history, what-if; overrides and interventions."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def check_gate(self, body: CheckIn, *, idempotency_key: str | None = None) -> CheckOut:
        """Look at the data now and decide, changing nothing.

        `POST /api/v1/gates/check`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/gates/check", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("CheckOut", told)

    def list_decisions(self, **query: Unpack[ListDecisionsQuery]) -> DecisionPage:
        """What gates decided, newest first, with all their evidence.

        `GET /api/v1/gates/decisions`
        """
        told = self._transport.call("GET", "/api/v1/gates/decisions", query=query)
        return cast("DecisionPage", told)

    def what_if(self, body: WhatIfIn, *, idempotency_key: str | None = None) -> WhatIfOut:
        """Decide recorded decisions again under other settings of the mode.

        `POST /api/v1/gates/what-if`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/gates/what-if", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("WhatIfOut", told)

    def backtest(self, body: BacktestIn, *, idempotency_key: str | None = None) -> BacktestOut:
        """Decide the last days again under other settings, and say what would have changed.

        `POST /api/v1/gates/backtest`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/gates/backtest",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("BacktestOut", told)

    def list_overrides(self, **query: Unpack[ListOverridesQuery]) -> OverridePage:
        """Approvals, newest first.

        `GET /api/v1/overrides`
        """
        told = self._transport.call("GET", "/api/v1/overrides", query=query)
        return cast("OverridePage", told)

    def grant_override(
        self, body: OverrideIn, *, idempotency_key: str | None = None
    ) -> OverrideOut:
        """Approve going on without a dependency, for a partition, until a time; as the caller.

        `POST /api/v1/overrides`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/overrides", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("OverrideOut", told)

    def revoke_override(
        self,
        override_id: str,
        body: OverrideRevokeIn | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Done:
        """Take an approval back; what started under it goes on.

        `POST /api/v1/overrides/{override_id}/revoke`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/overrides/{quoted(override_id)}/revoke",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("Done", told)

    def list_interventions(self, **query: Unpack[ListInterventionsQuery]) -> InterventionPage:
        """What waits for a person, newest first.

        `GET /api/v1/interventions`
        """
        told = self._transport.call("GET", "/api/v1/interventions", query=query)
        return cast("InterventionPage", told)

    def get_intervention(self, intervention_id: str) -> InterventionOut:
        """One item of the manual queue.

        `GET /api/v1/interventions/{intervention_id}`
        """
        told = self._transport.call("GET", f"/api/v1/interventions/{quoted(intervention_id)}")
        return cast("InterventionOut", told)

    def resolve_intervention(
        self, intervention_id: str, body: ResolveIn, *, idempotency_key: str | None = None
    ) -> Done:
        """Say what was done about it; its gate is asked again at once.

        `POST /api/v1/interventions/{intervention_id}/resolve`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/interventions/{quoted(intervention_id)}/resolve",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("Done", told)
