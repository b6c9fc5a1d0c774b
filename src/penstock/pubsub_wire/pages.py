"""Lists: converts pages that use cases return to responses of Google's services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.core.errors import InvalidInput
from penstock.core.records.record import Page
from penstock.pubsub_wire.calls import WireCaller

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1_000


class Listing(NamedTuple):
    """A list: the class of its response, the field of the items, and the conversion of an item."""

    response: Any
    field: str
    convert: Callable[[Any], Any]

    def page(self, pb: Any, read: Callable[..., Page[Any]], **filters: Any) -> Any:
        """Return the requested page of the list that `read` returns."""
        page = read(limit=_limit(pb.page_size), cursor=pb.page_token or None, **filters)
        shown = [self.convert(one) for one in page.items]
        return self.response(**{self.field: shown}, next_page_token=page.next_cursor or "")

    def of_project(
        self, caller: WireCaller, project: str, pb: Any, read: Callable[..., Page[Any]]
    ) -> Any:
        """Return a page of a project's resources; empty if the project does not exist yet."""

        def found(customer: str | None) -> Any:
            return self.page(pb, read, customer=customer)

        return caller.or_empty(project, self.response(), found)


def _limit(page_size: int) -> int:
    if page_size < 0:
        raise InvalidInput("page_size", "0 or more", page_size)
    return min(page_size or PAGE_DEFAULT, PAGE_MAX)
