"""Sentry: unexpected errors of services, and dead runs.

This module needs the extra `sentry` and is loaded only if a DSN is configured. Events are sent on a
separate client, so that a program that uses Sentry itself is not affected.
"""

from __future__ import annotations

from typing import Any

import sentry_sdk

from penstock.audit.telemetry import RunEnded, ServiceError
from penstock.core.ids import encode
from penstock.core.redact import redact_text
from penstock.telemetry.processor_names import NameOf


class SentryClient:
    """Sends errors to one project."""

    def __init__(self, dsn: str, *, environment: str | None, release: str, name_of: NameOf) -> None:
        self._name_of = name_of
        self._client = sentry_sdk.Client(
            dsn=dsn,
            environment=environment,
            release=f"penstock@{release}",
            default_integrations=False,
        )

    def send(self, events: list[ServiceError | RunEnded]) -> int:
        """Send errors; return how many were accepted."""
        sent = 0
        for event in events:
            made: Any = self._dead(event) if isinstance(event, RunEnded) else _failed(event)
            sent += self._client.capture_event(made) is not None
        self._client.flush(timeout=2.0)
        return sent

    def close(self) -> None:
        """Send the remaining events."""
        self._client.close(timeout=2.0)

    def _dead(self, event: RunEnded) -> dict[str, Any]:
        name = self._name_of(event.processor_key)
        run = encode("run", event.run_id)
        return {
            "level": "error",
            "logger": "penstock.runs",
            "transaction": ".".join(name),
            "fingerprint": ["dead run", *name, event.error_type or ""],
            "exception": {
                "values": [
                    {
                        "type": event.error_class or event.error_type or "Error",
                        "value": redact_text(event.error or "the run failed"),
                    }
                ]
            },
            "tags": {
                "pipeline": name.pipeline,
                "phase": name.phase,
                "processor": name.processor,
                "error_type": event.error_type,
                "run_id": run,
                "correlation_id": event.correlation_id or encode("run", event.root_run_id),
            },
            "extra": {
                "attempt": event.attempt,
                "traceback": redact_text(event.traceback or ""),
                "show": f"penstock runs show {run}",
            },
        }


def _failed(event: ServiceError) -> dict[str, Any]:
    error = event.exception
    return {
        "level": "error",
        "logger": f"penstock.{event.service}",
        "fingerprint": ["service", event.service, type(error).__name__],
        "exception": {
            "values": [
                {
                    "type": "ServiceError" if error is None else type(error).__name__,
                    "value": redact_text(event.error),
                }
            ]
        },
        "tags": {"service": event.service},
    }
