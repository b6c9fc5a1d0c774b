"""Egress rules: known spellings of non-public addresses and unsafe URLs are rejected."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.egress.policy import (
    BLOCKED_PORTS,
    EgressRules,
    check_address,
    check_addresses,
    embedded_ipv4,
    is_public,
    parse_target,
)

PERMISSIVE = EgressRules(allow_http=True, allow_private=True)

PRIVATE = (
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.9",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250",
    "240.0.0.1", "255.255.255.255", "168.63.129.16",
)  # fmt: skip
PUBLIC = ("1.1.1.1", "8.8.8.8", "93.184.215.14", "172.32.0.1", "100.128.0.1", "192.169.0.1")


def embedded_in(ipv4: str) -> list[str]:
    """Return the IPv6 forms that embed an IPv4 address."""
    n = int(ipaddress.IPv4Address(ipv4))
    high, low = n >> 16, n & 0xFFFF
    return [
        f"::ffff:{ipv4}",
        f"::ffff:{high:x}:{low:x}",
        f"::ffff:0:{high:x}:{low:x}",
        f"64:ff9b::{high:x}:{low:x}",
        f"2002:{high:x}:{low:x}::1",
        f"2002:{high:x}:{low:x}:1:2:3:4:5",
        f"2001:0:808:808:0:0:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}",
    ]


class TestAddresses:
    """Parsed IP addresses."""

    @pytest.mark.parametrize("address", PRIVATE)
    def test_private_addresses_are_rejected_in_every_form(self, address: str) -> None:
        for spelled in [address, *embedded_in(address), f"::{address}"]:
            with pytest.raises(InvalidInput) as caught:
                check_address(spelled)
            assert "public" in caught.value.message
            assert str(check_address(spelled, PERMISSIVE)) == str(ipaddress.ip_address(spelled))

    @pytest.mark.parametrize("address", PUBLIC)
    def test_public_addresses_are_allowed(self, address: str) -> None:
        for spelled in [address, *embedded_in(address)]:
            assert check_address(spelled) == ipaddress.ip_address(spelled)

    @pytest.mark.parametrize(
        "address",
        [
            "::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1",
            "64:ff9b:1::808:808", "2001:db8::1", "3fff::1", "2001:2::1", "2001:10::1", "3ffe::1",
            "4000::1", "fe80::5efe:808:808", "2606:4700::5efe:a9fe:a9fe",
            "2606:4700::200:5efe:a00:1", "2001:0:a00:1:0:0:f7f7:f7f7",
        ],
    )  # fmt: skip
    def test_private_ipv6(self, address: str) -> None:
        """Loopback, link-local, site-local, unique local, documentation, private tunnels."""
        with pytest.raises(InvalidInput):
            check_address(address)

    @pytest.mark.parametrize("address", ["2606:4700:4700::1111", "2a00:1450:4001::200e"])
    def test_public_ipv6(self, address: str) -> None:
        assert check_address(address) == ipaddress.ip_address(address)

    @pytest.mark.parametrize("address", ["fe80::1%eth0", "1.2.3", "", "example.com", "127.0.0.01"])
    def test_invalid_addresses(self, address: str) -> None:
        """Invalid addresses from a resolver are rejected even under permissive rules."""
        with pytest.raises(InvalidInput):
            check_address(address, PERMISSIVE)

    def test_one_disallowed_address_rejects_the_host(self) -> None:
        assert len(check_addresses(["1.1.1.1", "8.8.8.8"])) == 2
        for wrong in (["1.1.1.1", "10.0.0.1"], ["10.0.0.1", "1.1.1.1"], []):
            with pytest.raises(InvalidInput):
                check_addresses(wrong)

    @given(st.ip_addresses(v=6))
    def test_embedded_addresses_must_be_public(self, address: ipaddress.IPv6Address) -> None:
        """No address that embeds a non-public address is public."""
        if is_public(address):
            assert all(is_public(inner) for inner in embedded_ipv4(address))

    @given(st.ip_addresses(v=4))
    def test_never_more_permissive_than_the_standard_library(
        self, address: ipaddress.IPv4Address
    ) -> None:
        assert not is_public(address) or (address.is_global and not address.is_multicast)


class TestUrls:
    """URLs, checked before any DNS lookup."""

    @pytest.mark.parametrize(
        "url",
        [
            "http://example.com/", "ftp://example.com/", "file" + ":///etc/passwd", "gopher://x.com/",
            "//example.com/", "example.com", "", "https://", "https:///x", "https:example.com",
            "https://user@example.com/", "https://user:pass@example.com/",
            "https://example.com@127.0.0.1/", "https://127.0.0.1#@example.com/",
            "https://example.com\\@127.0.0.1/", "https://example.com\\.evil.com/",
            "https://exa mple.com/", "https://example.com/\r\nHost: x", "https://example.com/a b",
            "https://example.com/\x00", "https://example.com/#frag", "\thttps://example.com/",
            "https://example.com./", "https://.example.com/", "https://exam..ple.com/",
            "https://-a.example.com/", "https://a_b.example.com/", "https://%31%32%37.0.0.1/",
            "https://example.com%2f@x/", "https://[::1/", "https://[::1]x/", "https://[1.2.3.4]/",
            "https://[fe80::1%25eth0]/", "https://[v1.a]/", "https://" + "a" * 64 + ".com/",
            "https://example.com/" + "a" * 2100, "https://" + "a." * 130 + "com/",
        ],
    )  # fmt: skip
    def test_invalid_urls(self, url: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            parse_target(url)
        assert "user:pass" not in caught.value.message

    @pytest.mark.parametrize(
        "host",
        [
            "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1",
            "0", "0x0", "127.0.0.0x1", "127.0.0.01", "1.1.1.1.1", "256.1.1.1", "1.2.3.4.",
            "３.1.1.1", "①②⑦.0.0.1", "127。0。0。1", "раypal.com", "exämple.com", "ⓔxample.com",
            "localhost", "metadata", "kubernetes.default.svc", "metadata.google.internal",
            "printer.local", "a.localhost", "router.lan", "db.corp", "x.home.arpa",
            "127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "[::]", "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:a9fe:a9fe]", "[fd00:ec2::254]", "[64:ff9b::a00:1]",
            "[2002:7f00:1::]", "[::127.0.0.1]",
        ],
    )  # fmt: skip
    def test_invalid_hosts(self, host: str) -> None:
        """Unusual spellings, homographs and internal names are rejected before a lookup."""
        with pytest.raises(InvalidInput):
            parse_target(f"https://{host}/")

    @pytest.mark.parametrize(
        "port", [0, 1, 21, 22, 25, 80, 110, 587, 1023, 6379, 5432, 65536, 99999]
    )
    def test_disallowed_ports(self, port: int) -> None:
        with pytest.raises(InvalidInput) as caught:
            parse_target(f"https://example.com:{port}/")
        assert "port 443" in caught.value.message

    @pytest.mark.parametrize("port", ["", "443", "8443", "1024", "65535"])
    def test_allowed_ports(self, port: str) -> None:
        colon = ":" if port else ""
        assert parse_target(f"https://example.com{colon}{port}/x").port == int(port or 443)

    def test_refused_ports_apply_under_permissive_rules(self) -> None:
        for port in (22, 25, *sorted(BLOCKED_PORTS)[:3]):
            with pytest.raises(InvalidInput):
                parse_target(f"http://10.0.0.1:{port}/", PERMISSIVE)

    def test_parts(self) -> None:
        """The host is lower-cased, the path is unchanged."""
        found = parse_target("HTTPS://Hooks.Example.COM:8443/a/B%20c?d=e&f")
        assert (found.scheme, found.host, found.port) == ("https", "hooks.example.com", 8443)
        assert found.path == "/a/B%20c?d=e&f"
        assert found.host_header == "hooks.example.com:8443"
        assert parse_target("https://xn--exmple-cua.com").path == "/"
        assert parse_target("https://example.com?q").path == "/?q"
        ipv6 = parse_target("https://[2606:4700:4700::1111]/")
        assert (ipv6.host, ipv6.host_header) == ("2606:4700:4700::1111", "[2606:4700:4700::1111]")

    def test_relaxed(self) -> None:
        """Settings allow http and private hosts separately, for development."""
        assert parse_target("http://localhost:8080/x", PERMISSIVE).origin == "http://localhost:8080"
        with pytest.raises(InvalidInput, match="egress_http"):
            parse_target("http://example.com/", EgressRules(allow_private=True))
        with pytest.raises(InvalidInput, match="egress_private"):
            parse_target("http://localhost/", EgressRules(allow_http=True))

    @given(st.text(max_size=60))
    def test_any_text_is_parsed_or_rejected(self, text: str) -> None:
        """Any text yields a target with a safe host, or InvalidInput."""
        for url in (text, f"https://{text}", f"https://{text}.com/"):
            try:
                found = parse_target(url)
            except InvalidInput:
                continue
            assert found.host.isascii()
            assert not set(found.host) & set("@/\\ %#?")
