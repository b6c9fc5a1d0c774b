"""Fixtures of these tests."""

from tests.kits.served import serve, served, shared
from tests.tenancy.tenants import pg_plain, pg_plain_dsn

__all__ = ["pg_plain", "pg_plain_dsn", "serve", "served", "shared"]
