"""An HTTP listener for the metrics of a process that serves no API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import start_http_server

from penstock.core.errors import SettingsError


@contextlib.contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Serve `/metrics` while the block runs; yield its URL."""
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        fix = "Choose another with --metrics-port or PENSTOCK_METRICS_PORT."
        raise SettingsError(
            "metrics_port", f"a free port on {host} ({reason})", port, fix
        ) from None
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)
