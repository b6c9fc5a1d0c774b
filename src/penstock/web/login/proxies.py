"""The address of a client behind proxies, from X-Forwarded-For; pure.

Every proxy appends the address that it was called from, and whatever a client sent stands to the
left. Read from the right, the first address that is not a trusted proxy is therefore the client's,
and nothing to the left of it is believed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from penstock.core.errors import SettingsError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
HOPS_MAX: Final = 20
"""Number of entries of the header that are read, from the right."""
ENTRY_MAX: Final = 60
"""Length of the longest address with brackets and a port."""


class TrustedProxies:
    """Networks of the proxies whose X-Forwarded-For is believed; none by default."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Parse addresses and networks in CIDR; raise SettingsError for anything else."""
        self._networks = tuple(_network(text) for text in networks)

    def client_address(self, peer: str, forwarded: Sequence[str]) -> str:
        """Return the address of the client of a request.

        peer: address of the connection. forwarded: values of the headers X-Forwarded-For, in order.
        Of an entry that is not an address, the proxy that sent it is returned.
        """
        nearest = _address(peer)
        if nearest is None or not self._is_trusted(nearest):
            return peer
        for entry in reversed(",".join(forwarded).rsplit(",", HOPS_MAX)[-HOPS_MAX:]):
            found = _address(_without_port(entry.strip(" \t")))
            if found is None:
                break
            nearest = found
            if not self._is_trusted(found):
                break
        return str(nearest)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen == 0:
        fix = "For example: 10.0.0.0/8, or 127.0.0.1 for a proxy on the same machine."
        raise SettingsError("trusted_proxies", "addresses or networks, not all", text, fix)
    return network


def _address(text: str) -> Address | None:
    """Return an address without a zone; an IPv4 address in an IPv6 one as itself."""
    if len(text) > ENTRY_MAX or "%" in text or not text.isascii():
        return None
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _without_port(entry: str) -> str:
    """Return the host of `address`, `address:port` or `[address]:port`."""
    host, _, port = entry.rpartition(":")
    if entry.startswith("["):
        return entry.partition("]")[0].removeprefix("[")
    return host if port.isdecimal() and host.count(".") == 3 and ":" not in host else entry
