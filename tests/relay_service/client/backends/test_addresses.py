from ipaddress import ip_address

import pytest

from relay_service.client.backends.addresses import (
    RefusedAddress,
    check_address,
    check_host,
    is_this_machine,
    resolve,
)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.0.1",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "fe80::1",
        "fe80::1%eth0",
        "[fe80::1]",
        "febf::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "64:ff9b:1::a9fe:a9fe",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "2001:0:4136:e378:8000:63bf:5601:5601",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "metadata.google.internal",
        "Metadata.Google.Internal.",
        "metadata",
        "instance-data.ec2.internal",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
    ],
)
def test_hosts_that_are_refused(host: str) -> None:
    with pytest.raises(RefusedAddress):
        check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "::1",
        "localhost",
        "192.168.1.10",
        "10.0.0.1",
        "fd12:3456::1",
        "8.8.8.8",
        "gpu.example.org",
        "169.253.255.255",
        "169.255.0.0",
        "fec0::1",
        "metadata.example.org",
    ],
)
def test_hosts_that_are_not(host: str) -> None:
    check_host(host)


def test_an_address_found_by_resolving_is_judged_alike() -> None:
    check_address(ip_address("127.0.0.1"))
    with pytest.raises(RefusedAddress):
        check_address(ip_address("169.254.169.254"))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("2130706433", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LocalHost.", True),
        ("192.168.1.10", False),
        ("localhost.example.org", False),
        ("gpu", False),
    ],
)
def test_what_counts_as_this_machine(host: str, local: bool) -> None:
    assert is_this_machine(host) is local


async def test_a_literal_resolves_to_itself() -> None:
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
    assert await resolve("2130706433", 80) == ["127.0.0.1"]
