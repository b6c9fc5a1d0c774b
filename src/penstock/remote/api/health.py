"""For load balancers and monitoring.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, cast

from penstock.remote.transport import Transport


class HealthApi:
    """For load balancers and monitoring."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def healthz(self) -> dict[str, Any]:
        """Whether the process is alive; asks nobody.

        `GET /healthz`
        """
        told = self._transport.call("GET", "/healthz")
        return cast("dict[str, Any]", told)

    def readyz(self) -> dict[str, Any]:
        """Whether it can serve: the store answers and the process is not stopping.

        `GET /readyz`
        """
        told = self._transport.call("GET", "/readyz")
        return cast("dict[str, Any]", told)

    def read_metrics(self) -> str:
        """Meters, as Prometheus reads them.

        `GET /metrics`
        """
        return self._transport.text("GET", "/metrics")
