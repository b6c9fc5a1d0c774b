"""Egress rules: strict checks of URLs and addresses that users choose and Penstock connects to.

Pure. A URL is parsed with one narrow grammar (ASCII, no userinfo, no unusual spellings of
addresses), so that two parsers cannot disagree about it. An address must be public, and so must
every IPv4 address embedded in it. The HTTP client (`penstock.egress.http_client`) resolves a host
once, passes every resolved address to `check_addresses`, and connects only to an address that was
checked. Rejections raise InvalidInput, which quotes nothing but the URL.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.core.errors import InvalidInput

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

URL_MAX: Final = 2_048
_URL = re.compile(r"(https?)://([^/?#]+)(/[^?#]*)?(\?[^#]*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}

INTERNAL_SUFFIXES: Final = (
    ".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home.arpa",
    ".corp", ".private", ".svc", ".test", ".invalid", ".onion",
)  # fmt: skip
"""Suffixes of host names that are only valid inside a private network."""

BLOCKED_PORTS: Final = frozenset(
    {
        1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3306, 3659, 4045, 4190, 5060,
        5061, 5432, 5672, 6000, 6379, 6566, *range(6665, 6670), 6679, 6697, 8125, 9042, 9092, 9200,
        9300, 10080, 10250, 11211, 27017,
    }
)  # fmt: skip
"""Ports above 1023 of services other than HTTP: databases, brokers, and ports browsers block."""

_IPV4_REFUSED = tuple(
    ipaddress.IPv4Network(net)
    for net in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "168.63.129.16/32",
    )
)  # fmt: skip
"""Networks that are rejected in addition to those of the standard library, whose table differs
between Python versions. The last one is a cloud provider's metadata service on a public address.
"""
_IPV6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_IPV6_REFUSED = tuple(
    ipaddress.IPv6Network(net) for net in ("2001::/23", "2001:db8::/32", "3ffe::/16", "3fff::/20")
)
_TEREDO = ipaddress.IPv6Network("2001::/32")
_EMBEDDING = (
    # (network, number of bits to shift right to get the embedded IPv4 address)
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),
    (ipaddress.IPv6Network("::/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRules:
    """Checks that may be relaxed, for development and for closed networks."""

    allow_http: bool = False
    allow_private: bool = False


HTTP_FIX: Final = "For development: egress_http=allowed (PENSTOCK_EGRESS_HTTP)."
PRIVATE_FIX: Final = "For development: egress_private=allowed (PENSTOCK_EGRESS_PRIVATE)."
STRICT: Final = EgressRules()
PERMISSIVE: Final = EgressRules(allow_http=True, allow_private=True)
"""Rules for parsing stored URLs; the configured rules apply when a URL is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The parts of a URL that passed the checks."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def host_header(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port as text; the default port is omitted."""
        return f"{self.scheme}://{self.host_header}"


def parse_target(url: object, rules: EgressRules = STRICT, field: str = "url") -> Target:
    """Parse a URL and check it against the rules; InvalidInput names the invalid part."""
    expected = "https://host/path" if not rules.allow_http else "http(s)://host/path"
    if not isinstance(url, str) or not url:
        raise InvalidInput(field, expected, url)
    if len(url) > URL_MAX:
        raise InvalidInput(field, f"at most {URL_MAX:,} characters", len(url))
    if not url.isascii():
        fix = "Write the host as its xn-- form and the path percent-encoded."
        raise InvalidInput(field, "ASCII characters only", url, fix)
    if any(char <= " " or char in '\x7f\\"<>^`{|}' for char in url):
        raise InvalidInput(field, "no spaces, backslashes or control characters", url)
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidInput(field, f"{expected} with no fragment", url)
    scheme = found[1].lower()
    if scheme == "http" and not rules.allow_http:
        raise InvalidInput(field, "https", url, HTTP_FIX)
    if "@" in found[2]:
        raise InvalidInput(field, "a URL without user and password", f"{scheme}://…@…")
    authority = _AUTHORITY.fullmatch(found[2])
    if authority is None:
        raise InvalidInput(field, "a host name or IP address, optionally with a port", url)
    host = _host(authority[1].lower(), rules, field)
    port = _DEFAULT_PORTS[scheme] if authority[2] is None else int(authority[2])
    _check_port(port, scheme, rules, field)
    return Target(scheme=scheme, host=host, port=port, path=(found[3] or "/") + (found[4] or ""))


def check_addresses(addresses: Sequence[str], rules: EgressRules = STRICT) -> list[Address]:
    """Check all addresses of a host; raise InvalidInput if there is none or one is not allowed.

    One disallowed address rejects the host: the outcome must not depend on which address is used.
    """
    if not addresses:
        raise InvalidInput("host", "a name that resolves", "no address")
    try:
        return [check_address(address, rules) for address in addresses]
    except InvalidInput:
        # Do not disclose internal addresses to the user who chose the name.
        expected = "a name that resolves to public addresses only"
        raise InvalidInput("host", expected, "another address", PRIVATE_FIX) from None


def check_address(address: str, rules: EgressRules = STRICT, field: str = "address") -> Address:
    """Parse an address and check it against the rules; raise InvalidInput if it is not allowed."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        raise InvalidInput(field, "an IP address", address) from None
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        raise InvalidInput(field, "an address without a zone", address)
    if not rules.allow_private and not is_public(found):
        raise InvalidInput(field, "a public address", address, PRIVATE_FIX)
    return found


def is_public(address: Address) -> bool:
    """Return whether an address, and every IPv4 address embedded in it, is public."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in net for net in _IPV4_REFUSED)
    if not all(is_public(inner) for inner in embedded_ipv4(address)):
        return False
    if address in _TEREDO or any(address in net for net, _ in _EMBEDDING):
        return True
    return (
        address.is_global
        and address in _IPV6_PUBLIC
        and not any(address in net for net in _IPV6_REFUSED)
    )


def embedded_ipv4(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """Return IPv4 addresses embedded in an IPv6 address: mapped, 6to4, NAT64, Teredo, ISATAP."""
    number = int(address)
    if address in _TEREDO:
        server, client = number >> 64, ~number
        return [ipaddress.IPv4Address(part & 0xFFFF_FFFF) for part in (server, client)]
    for net, shift in _EMBEDDING:
        if address in net:
            return [ipaddress.IPv4Address((number >> shift) & 0xFFFF_FFFF)]
    if (number >> 32) & 0xFDFF_FFFF == 0x0000_5EFE:
        return [ipaddress.IPv4Address(number & 0xFFFF_FFFF)]
    return []


def _host(text: str, rules: EgressRules, field: str) -> str:
    """Check a host name or literal address; return its canonical form."""
    if text.startswith("["):
        try:
            literal = ipaddress.IPv6Address(text[1:-1])
        except ValueError:
            raise InvalidInput(field, "an IPv6 address in brackets", text) from None
        return str(check_address(str(literal), rules, field))
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1] or "."):
        return _ipv4(text, rules, field)
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        fix = "Remove trailing dots, empty or overlong labels, and underscores."
        raise InvalidInput(field, "a host name", text, fix)
    if not rules.allow_private and (len(labels) == 1 or text.endswith(INTERNAL_SUFFIXES)):
        raise InvalidInput(field, "the name of a public host", text, PRIVATE_FIX)
    return text


def _ipv4(text: str, rules: EgressRules, field: str) -> str:
    """Check a host that ends in a number, which must be a dotted-decimal IPv4 address."""
    try:
        literal = ipaddress.IPv4Address(text)
    except ValueError:
        fix = "Octal, hexadecimal, abbreviated and single-number forms are not accepted."
        raise InvalidInput(field, "an IPv4 address of four decimal numbers", text, fix) from None
    return str(check_address(str(literal), rules, field))


def _check_port(port: int, scheme: str, rules: EgressRules, field: str) -> None:
    is_default = port == _DEFAULT_PORTS[scheme] or (rules.allow_http and port in (80, 443))
    if not is_default and (not 1_024 <= port <= 65_535 or port in BLOCKED_PORTS):
        expected = "port 443, or a port above 1023 that is not used by another well-known service"
        raise InvalidInput(field, expected, port)
