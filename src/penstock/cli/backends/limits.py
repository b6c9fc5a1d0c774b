"""The use cases of the commands for limits, on the database and through the API."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.cli.backends.paging import read_pages
from penstock.cli.backends.protocol import Shape
from penstock.client import Client
from penstock.core.ids import decode


class LimitCases(Protocol):
    """Use cases for limits, with the API's field names."""

    def page(self, limit: int) -> list[Shape]:
        """Return limits, by name."""
        ...

    def detail(self, name: str) -> Shape:
        """Return one limit with its holders, queue and wait times."""
        ...

    def declare(self, name: str, settings: Shape) -> Shape:
        """Create or change a limit and return it."""
        ...

    def release(self, lease_id: str, reason: str) -> Shape:
        """Release a lease and return it."""
        ...


class DatabaseLimits:
    """Use cases for limits that access the database directly."""

    def __init__(self, client: Client) -> None:
        self._limits = client.limits

    def page(self, limit: int) -> list[Shape]:
        """Return limits, by name."""
        # Imported here so that commands over a URL do not load it.
        from penstock.limits.shapes import limit_shape

        return [limit_shape(view) for view in self._limits.page(limit=limit)]

    def detail(self, name: str) -> Shape:
        """Return one limit with its holders, queue and wait times."""
        from penstock.limits.shapes import limit_detail_shape  # as above

        return limit_detail_shape(self._limits.get(name))

    def declare(self, name: str, settings: Shape) -> Shape:
        """Create or change a limit and return it."""
        from penstock.limits.shapes import limit_detail_shape  # as above

        return limit_detail_shape(self._limits.declare(name, settings))

    def release(self, lease_id: str, reason: str) -> Shape:
        """Release a lease and return it."""
        from penstock.limits.shapes import lease_shape  # as above

        return lease_shape(self._limits.release(decode("lease", lease_id), reason))


class HttpLimits:
    """Use cases for limits through the API."""

    def __init__(self, api: Any) -> None:
        # Typed as Any: commands read the typed responses of the client as plain JSON objects.
        self._limits = api.limits

    def page(self, limit: int) -> list[Shape]:
        """Return limits, by name."""
        return read_pages(self._limits.list_limits, limit, {})

    def detail(self, name: str) -> Shape:
        """Return one limit with its holders, queue and wait times."""
        found: Shape = self._limits.get_limit(name=name)
        return found

    def declare(self, name: str, settings: Shape) -> Shape:
        """Create or change a limit and return it."""
        made: Shape = self._limits.declare_limit({"name": name, **settings})
        return made

    def release(self, lease_id: str, reason: str) -> Shape:
        """Release a lease and return it."""
        lease: Shape = self._limits.release_slot({"lease_id": lease_id, "reason": reason})
        return lease
