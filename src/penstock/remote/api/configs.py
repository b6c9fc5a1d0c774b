"""Customers' schedules: create, change, preview, audit.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.configs import (
    AuditPage,
    BulkItem,
    BulkOutcome,
    ConfigIn,
    ConfigOut,
    ConfigPage,
    ConfigPatch,
    ListCustomerConfigsQuery,
    OccurrencePage,
    PreviewIn,
    PreviewOut,
    StartIn,
    StartOut,
)
from penstock.remote.transport import Transport, quoted


class ConfigsApi:
    """Customers' schedules: create, change, preview, audit."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_configs_bulk(
        self,
        body: list[BulkItem],
        *,
        dry_run: bool | None = None,
        with_configs: bool | None = None,
        idempotency_key: str | None = None,
    ) -> list[BulkOutcome]:
        """Create many configs; each item is created or refused by itself.

        `POST /api/v1/pipeline-configs/bulk`

        dry_run: Check every item, create none.
        with_configs: Answer with each config as created, not only its id.
        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.lines(
            "POST",
            "/api/v1/pipeline-configs/bulk",
            query={"dry_run": dry_run, "with_configs": with_configs},
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("list[BulkOutcome]", told)

    def create_config(
        self, customer_id: str, body: ConfigIn, *, idempotency_key: str | None = None
    ) -> ConfigOut:
        """Enable a pipeline for a customer: the config is on the clock when this answers.

        `POST /api/v1/customers/{customer_id}/pipeline-configs`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/customers/{quoted(customer_id)}/pipeline-configs",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("ConfigOut", told)

    def list_customer_configs(
        self, customer_id: str, **query: Unpack[ListCustomerConfigsQuery]
    ) -> ConfigPage:
        """A customer's configs, oldest first.

        `GET /api/v1/customers/{customer_id}/pipeline-configs`
        """
        told = self._transport.call(
            "GET", f"/api/v1/customers/{quoted(customer_id)}/pipeline-configs", query=query
        )
        return cast("ConfigPage", told)

    def list_configs(self, **query: Unpack[ListCustomerConfigsQuery]) -> ConfigPage:
        """Configs of everybody the key may see, oldest first.

        `GET /api/v1/pipeline-configs`
        """
        told = self._transport.call("GET", "/api/v1/pipeline-configs", query=query)
        return cast("ConfigPage", told)

    def get_config(self, config_id: str) -> ConfigOut:
        """One config; a deleted one is not found.

        `GET /api/v1/pipeline-configs/{config_id}`
        """
        told = self._transport.call("GET", f"/api/v1/pipeline-configs/{quoted(config_id)}")
        return cast("ConfigOut", told)

    def update_config(
        self, config_id: str, body: ConfigPatch, *, if_match: str | None = None
    ) -> ConfigOut:
        """Change fields; with If-Match or `version` only when nobody changed it since (else 409).

        `PATCH /api/v1/pipeline-configs/{config_id}`

        if_match: The ETag, such as `"3"`.
        """
        told = self._transport.call(
            "PATCH",
            f"/api/v1/pipeline-configs/{quoted(config_id)}",
            body=body,
            headers={"If-Match": if_match},
        )
        return cast("ConfigOut", told)

    def delete_config(
        self, config_id: str, *, reason: str | None = None, if_match: str | None = None
    ) -> None:
        """Delete a config: it stops firing, its history stays. A second delete finds nothing (404).

        `DELETE /api/v1/pipeline-configs/{config_id}`

        reason: Why.
        if_match: The ETag, such as `"3"`.
        """
        self._transport.call(
            "DELETE",
            f"/api/v1/pipeline-configs/{quoted(config_id)}",
            query={"reason": reason},
            headers={"If-Match": if_match},
        )

    def start_config(
        self, config_id: str, body: StartIn | None = None, *, idempotency_key: str | None = None
    ) -> StartOut:
        """Start a config now, outside its schedule; 409 when it is off or has no room for a run.

        `POST /api/v1/pipeline-configs/{config_id}/start`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/pipeline-configs/{quoted(config_id)}/start",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("StartOut", told)

    def preview_config(self, config_id: str, *, n: int | None = None) -> PreviewOut:
        """The next starts of a config, with notes where daylight saving moves one.

        `GET /api/v1/pipeline-configs/{config_id}/preview`

        n: How many.
        """
        told = self._transport.call(
            "GET", f"/api/v1/pipeline-configs/{quoted(config_id)}/preview", query={"n": n}
        )
        return cast("PreviewOut", told)

    def preview_schedule(
        self, body: PreviewIn, *, idempotency_key: str | None = None
    ) -> PreviewOut:
        """The next starts of a schedule that is not saved yet.

        `POST /api/v1/schedules/preview`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/schedules/preview",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("PreviewOut", told)

    def audit_config(
        self, config_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> AuditPage:
        """Who changed a config, when, why, from what to what; oldest first.

        `GET /api/v1/pipeline-configs/{config_id}/audit`

        limit: Page size.
        cursor: The `next_cursor` of the page before.
        """
        told = self._transport.call(
            "GET",
            f"/api/v1/pipeline-configs/{quoted(config_id)}/audit",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("AuditPage", told)

    def audit_customer(
        self,
        customer_id: str,
        *,
        config_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> AuditPage:
        """A customer's audit chain, oldest first.

        `GET /api/v1/customers/{customer_id}/audit`

        config_id: Only of this config.
        limit: Page size.
        cursor: The `next_cursor` of the page before.
        """
        told = self._transport.call(
            "GET",
            f"/api/v1/customers/{quoted(customer_id)}/audit",
            query={"config_id": config_id, "limit": limit, "cursor": cursor},
        )
        return cast("AuditPage", told)

    def list_occurrences(
        self, config_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> OccurrencePage:
        """Slots of a config that did not start, and why; newest first.

        `GET /api/v1/pipeline-configs/{config_id}/occurrences`

        limit: Page size.
        cursor: The `next_cursor` of the page before.
        """
        told = self._transport.call(
            "GET",
            f"/api/v1/pipeline-configs/{quoted(config_id)}/occurrences",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("OccurrencePage", told)
