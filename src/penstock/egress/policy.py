"""Where the house may send requests that somebody else chose: URLs and addresses, judged strictly.

Pure. A URL is read by one narrow grammar (ASCII, no userinfo, no odd spellings of addresses), so
that there is nothing for two parsers to disagree about. An address must be a public one after every
IPv4 address hidden in it was unwrapped. Whoever connects (`penstock.egress.pinned`) resolves once,
asks `judge_all` about every answer, and connects to what was judged. What is refused is
InvalidInput, which never quotes more than the URL itself.
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
_PLAIN_PORTS: Final = {"https": 443, "http": 80}

HOUSE_SUFFIXES: Final = (
    ".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home.arpa",
    ".corp", ".private", ".svc", ".test", ".invalid", ".onion",
)  # fmt: skip
"""Names that only mean something inside a network."""

REFUSED_PORTS: Final = frozenset(
    {
        1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3306, 3659, 4045, 4190, 5060,
        5061, 5432, 5672, 6000, 6379, 6566, *range(6665, 6670), 6679, 6697, 8125, 9042, 9092, 9200,
        9300, 10080, 10250, 11211, 27017,
    }
)  # fmt: skip
"""Above 1023, other services than HTTP: databases, brokers, and what browsers refuse."""

_FOUR_REFUSED = tuple(
    ipaddress.IPv4Network(net)
    for net in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "168.63.129.16/32",
    )
)  # fmt: skip
"""Named here as well as by the standard library, whose table differs from version to version. The
last is a cloud's metadata service on a public address.
"""
_SIX_PUBLIC = ipaddress.IPv6Network("2000::/3")
_SIX_REFUSED = tuple(
    ipaddress.IPv6Network(net) for net in ("2001::/23", "2001:db8::/32", "3ffe::/16", "3fff::/20")
)
_TEREDO = ipaddress.IPv6Network("2001::/32")
_HIDING = (
    # (network, how many bits to shift the embedded IPv4 address down by)
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),
    (ipaddress.IPv6Network("::/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRules:
    """What may be relaxed, for development and for closed networks."""

    allow_http: bool = False
    allow_private: bool = False


HTTP_FIX: Final = "For development: egress_http=allowed (PENSTOCK_EGRESS_HTTP)."
PRIVATE_FIX: Final = "For development: egress_private=allowed (PENSTOCK_EGRESS_PRIVATE)."
STRICT: Final = EgressRules()
ANYWHERE: Final = EgressRules(allow_http=True, allow_private=True)
"""For reading what is stored: where it may point is judged again when it is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL that may be asked for, in parts."""

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
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PLAIN_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.host_header}"


def parse_target(url: object, rules: EgressRules = STRICT, field: str = "url") -> Target:
    """The parts of a URL that the rules allow; InvalidInput says which part is wrong."""
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
        raise InvalidInput(field, f"{expected}, without a fragment", url)
    scheme = found[1].lower()
    if scheme == "http" and not rules.allow_http:
        raise InvalidInput(field, "https", url, HTTP_FIX)
    if "@" in found[2]:
        raise InvalidInput(field, "no user or password in it", f"{scheme}://…@…")
    authority = _AUTHORITY.fullmatch(found[2])
    if authority is None:
        raise InvalidInput(field, "a host name or an address, and perhaps a port", url)
    host = _host(authority[1].lower(), rules, field)
    port = _PLAIN_PORTS[scheme] if authority[2] is None else int(authority[2])
    _check_port(port, scheme, rules, field)
    return Target(scheme=scheme, host=host, port=port, path=(found[3] or "/") + (found[4] or ""))


def judge_all(addresses: Sequence[str], rules: EgressRules = STRICT) -> list[Address]:
    """The addresses of a host, all of them allowed; InvalidInput when one is not or there is none.

    One bad address refuses the host: which one is used must not depend on chance.
    """
    if not addresses:
        raise InvalidInput("host", "a name that resolves", "no address")
    return [judge(address, rules) for address in addresses]


def judge(address: str, rules: EgressRules = STRICT, field: str = "address") -> Address:
    """The address, when requests may go there; InvalidInput otherwise."""
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
    """Whether an address, and every IPv4 address hidden in it, belongs to the open internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in net for net in _FOUR_REFUSED)
    if not all(is_public(inner) for inner in unwrap(address)):
        return False
    if address in _TEREDO or any(address in net for net, _ in _HIDING):
        return True
    return (
        address.is_global
        and address in _SIX_PUBLIC
        and not any(address in net for net in _SIX_REFUSED)
    )


def unwrap(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """IPv4 addresses that an IPv6 address stands for: mapped, 6to4, NAT64, Teredo, ISATAP."""
    number = int(address)
    if address in _TEREDO:
        server, client = number >> 64, ~number
        return [ipaddress.IPv4Address(part & 0xFFFF_FFFF) for part in (server, client)]
    for net, shift in _HIDING:
        if address in net:
            return [ipaddress.IPv4Address((number >> shift) & 0xFFFF_FFFF)]
    if (number >> 32) & 0xFDFF_FFFF == 0x0000_5EFE:
        return [ipaddress.IPv4Address(number & 0xFFFF_FFFF)]
    return []


def _host(text: str, rules: EgressRules, field: str) -> str:
    """A host name or a literal address, checked and spelled in its one way."""
    if text.startswith("["):
        try:
            literal = ipaddress.IPv6Address(text[1:-1])
        except ValueError:
            raise InvalidInput(field, "an IPv6 address in brackets", text) from None
        return str(judge(str(literal), rules, field))
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1] or "."):
        return _four(text, rules, field)
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        fix = "No trailing dot, no empty or overlong part, no underscore."
        raise InvalidInput(field, "a host name", text, fix)
    if not rules.allow_private and (len(labels) == 1 or text.endswith(HOUSE_SUFFIXES)):
        raise InvalidInput(field, "the name of a public host", text, PRIVATE_FIX)
    return text


def _four(text: str, rules: EgressRules, field: str) -> str:
    """A host that ends in a number is an IPv4 address in plain decimal, or refused."""
    try:
        literal = ipaddress.IPv4Address(text)
    except ValueError:
        fix = "Decimal, octal, hexadecimal and short spellings of addresses are refused."
        raise InvalidInput(field, "an IPv4 address of four decimal numbers", text, fix) from None
    return str(judge(str(literal), rules, field))


def _check_port(port: int, scheme: str, rules: EgressRules, field: str) -> None:
    is_plain = port == _PLAIN_PORTS[scheme] or (rules.allow_http and port in (80, 443))
    if not is_plain and (not 1_024 <= port <= 65_535 or port in REFUSED_PORTS):
        expected = "port 443, or one above 1023 that is not known for another service"
        raise InvalidInput(field, expected, port)
