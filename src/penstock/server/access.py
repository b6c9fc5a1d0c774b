"""Authorization by role.

A route declares the permission that it requires. `access.api_keys` maps roles to permissions: a
viewer reads, a worker claims and reports runs, an operator does both and makes changes, an admin
also manages keys.
"""

from __future__ import annotations

from penstock.access.api_keys import PERMISSIONS, Permission, Role


def forbidden(role: Role, permission: Permission) -> str:
    """Return the message for a role that lacks a permission; it names the roles that have it."""
    able = [one.value for one in Role if permission in PERMISSIONS[one]]
    return f"A key of role {role} may not do this; it requires {' or '.join(reversed(able))}."
