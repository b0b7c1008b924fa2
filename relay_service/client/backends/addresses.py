"""Which addresses a back end may have.

A base URL comes from the owner's configuration, but a name in it is resolved by somebody else. The services
that clouds put on link-local addresses hand out credentials to whoever can make this machine send a request,
so they are refused by name, by number, and again after every resolution.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

METADATA_HOSTS = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.internal",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.tencentyun.com",
    }
)
# Metadata services at addresses that are not link-local: Google over IPv6, Alibaba, Oracle, Azure.
METADATA_ADDRESSES = frozenset(
    map(ip_address, ("fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)
# All that AWS serves to its machines over IPv6, credentials among it.
METADATA_NETWORK = IPv6Network("fd00:ec2::/32")
# Forms of IPv6 whose last 32 bits are an IPv4 address: NAT64, its local prefix, compatible, translated.
_IPV4_INSIDE = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")))
_FIRST_COMPATIBLE = 0x100

Address = IPv4Address | IPv6Address


class RefusedAddress(ValueError):  # noqa: N818 - a refusal is its name everywhere
    """The address may not be a back end's. The message is for the owner of this machine alone."""


def check_host(host: str) -> None:
    """Judge a host as written in a configuration.

    Raises:
        RefusedAddress: It names a metadata service, or is an address that `check_address` refuses.
    """
    name = host.rstrip(".").lower()
    if name in METADATA_HOSTS:
        raise RefusedAddress(f"{host} is a cloud metadata service")
    literal = literal_address(name)
    if literal is not None:
        check_address(literal)


def check_address(address: Address) -> None:
    """Judge an address that is about to be connected to.

    Raises:
        RefusedAddress: It is link-local, a metadata service's, or no address of a single server.
    """
    address = _unwrapped(address)
    if address.is_link_local:
        raise RefusedAddress(f"{address} is link-local")
    if address in METADATA_ADDRESSES or address in METADATA_NETWORK:
        raise RefusedAddress(f"{address} is a cloud metadata service")
    if address.is_unspecified or address.is_multicast:
        raise RefusedAddress(f"{address} is not the address of a server; is 127.0.0.1 meant?")


def literal_address(host: str) -> Address | None:
    """Return the address that the host is written as, or None for a name.

    The old spellings of IPv4 count too (`2852039166`, `0xa9fe.43518`), since resolvers accept them.
    """
    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def is_this_machine(host: str) -> bool:
    """Tell whether the host is, as written, a loopback address. A name other than localhost is not."""
    name = host.rstrip(".").lower()
    literal = literal_address(name)
    return name == "localhost" if literal is None else _unwrapped(literal).is_loopback


async def resolve(host: str, port: int) -> list[str]:
    """Return the host's addresses, best first.

    Raises:
        OSError: It cannot be resolved.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 one where packets would go to the former."""
    if isinstance(address, IPv4Address):
        return address
    # The first few of ::/96 are no compatible addresses: :: itself, and ::1, which is this machine.
    if int(address) >= _FIRST_COMPATIBLE and any(address in network for network in _IPV4_INSIDE):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    tunnel = address.teredo
    return address.ipv4_mapped or address.sixtofour or (tunnel[1] if tunnel else None) or address
