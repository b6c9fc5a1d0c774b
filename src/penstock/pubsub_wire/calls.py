"""One call: its caller, its permissions, and the customer of its projects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.access.api_keys import Permission, Role
from penstock.bus.store.topics import SYSTEM
from penstock.bus.transports.embedded import BusOperations
from penstock.client import Client
from penstock.core.errors import Forbidden, NotFound
from penstock.core.naming import CustomerKey
from penstock.egress.policy import EgressRules

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCaller:
    """The caller of one or more calls.

    key: the API key it sent, or None on a port that requires none. `own_project` is the project of
    system topics.
    """

    name: str
    role: Role
    client: Client
    own_project: str
    rules: EgressRules
    key: str | None = None
    jitter: Callable[[], float] | None = None
    keys: dict[str, CustomerKey] = field(default_factory=dict)
    """Cached keys of customers."""

    def require(self, permission: Permission) -> None:
        """Raise Forbidden if the caller lacks the permission."""
        if not self.role.has_permission(permission):
            raise Forbidden(f"The role {self.role.value} lacks the permission {permission.value}.")

    def customer(self, project: str) -> str | None:
        """Return the customer of a project; None for the project of system topics.

        A caller bound to a customer finds only its own project.
        """
        bound = self.client.customer_id
        if bound is not None:
            if project != bound:
                raise NotFound("project", project)
            return bound
        return None if project == self.own_project else project

    def bus(self, project: str) -> BusOperations:
        """Return the bus of a project's customer."""
        return BusOperations(
            self.client.store,
            customer_key=self.customer_key(project),
            actor=self.client.actor,
            jitter=self.jitter,
        )

    def customer_key(self, project: str) -> CustomerKey:
        """Return the key of a project's customer; raise NotFound if there is none."""
        customer = self.customer(project)
        if customer is None:
            return SYSTEM
        known = self.keys.get(customer)
        if known is None:
            known = self.keys[customer] = self.client.customer_key_of(customer)
        return known

    def or_empty(self, project: str, empty: T, read: Callable[[str | None], T]) -> T:
        """Call `read` with a project's customer; return `empty` if there is no such customer."""
        customer = self.customer(project)
        if customer is not None:
            try:
                self.client.customer_key_of(customer)
            except NotFound:
                return empty
        return read(customer)
