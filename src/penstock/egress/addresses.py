"""Addresses: loopback detection, and NAME=ADDRESS pairs from settings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from penstock.core.errors import SettingsError

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def parse_named_addresses(items: Iterable[str], field: str) -> dict[str, str]:
    """Parse NAME=ADDRESS items into a mapping.

    Error messages omit the address, because it may contain a password.
    """
    found: dict[str, str] = {}
    for item in items:
        name, _, address = item.partition("=")
        if not NAME.fullmatch(name) or ":" not in address or name in found:
            given = f"{name}=…" if address else name
            fix = "For example: season=duckdb:season.duckdb"
            raise SettingsError(field, "NAME=ADDRESS, each name once", given, fix)
        found[name] = address
    return found
