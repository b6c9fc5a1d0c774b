"""What commands about limits can do, whoever does it; see `cli.usecases`."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.cli.backends.paging import gather
from penstock.cli.backends.protocol import Shape
from penstock.client import Client
from penstock.core.ids import decode


class LimitCases(Protocol):
    """Everything commands ask about limits, in the API's words."""

    def page(self, limit: int) -> list[Shape]:
        """Limits by name."""
        ...

    def detail(self, name: str) -> Shape:
        """One limit in full."""
        ...

    def declare(self, name: str, settings: Shape) -> Shape:
        """Say how a limit is configured."""
        ...

    def release(self, lease_id: str, reason: str) -> Shape:
        """Take a slot away."""
        ...


class HereLimits:
    """The use cases on the database."""

    def __init__(self, client: Client) -> None:
        self._limits = client.limits

    def page(self, limit: int) -> list[Shape]:
        """Limits by name."""
        # As in `usecases`: whoever asks over a URL pays nothing for it.
        from penstock.limits.shapes import limit_shape

        return [limit_shape(view) for view in self._limits.page(limit=limit)]

    def detail(self, name: str) -> Shape:
        """One limit in full."""
        from penstock.limits.shapes import limit_detail_shape  # as above

        return limit_detail_shape(self._limits.get(name))

    def declare(self, name: str, settings: Shape) -> Shape:
        """Say how a limit is configured."""
        from penstock.limits.shapes import limit_detail_shape  # as above

        return limit_detail_shape(self._limits.declare(name, settings))

    def release(self, lease_id: str, reason: str) -> Shape:
        """Take a slot away."""
        from penstock.limits.shapes import lease_shape  # as above

        return lease_shape(self._limits.release(decode("lease", lease_id), reason))


class ThereLimits:
    """The use cases over the API."""

    def __init__(self, api: Any) -> None:
        # Answers are JSON objects by the document's word; commands read them as such.
        self._limits = api.limits

    def page(self, limit: int) -> list[Shape]:
        """Limits by name."""
        return gather(self._limits.list_limits, limit, {})

    def detail(self, name: str) -> Shape:
        """One limit in full."""
        found: Shape = self._limits.get_limit(name=name)
        return found

    def declare(self, name: str, settings: Shape) -> Shape:
        """Say how a limit is configured."""
        made: Shape = self._limits.declare_limit({"name": name, **settings})
        return made

    def release(self, lease_id: str, reason: str) -> Shape:
        """Take a slot away."""
        told: Shape = self._limits.release_slot({"lease_id": lease_id, "reason": reason})
        return told
