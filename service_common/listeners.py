"""Where a server listens, and the refusal to do so unprotected."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

import grpc

from service_common.errors import SettingsError

_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>[0-9]{1,5})")
_UNIX_SCHEMES: Final = ("unix:", "unix-abstract:")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to serve on.

    Attributes:
        address: `host:port`, `[v6]:port`, `unix:PATH` or `unix-abstract:NAME`; port 0 takes a free one.
        credentials: The server's TLS, or None for plaintext.
        behind_mesh: A sidecar terminates TLS, so plaintext is meant even off loopback.
        dev: Started for development: nothing but loopback will do.
    """

    address: str
    credentials: grpc.ServerCredentials | None = None
    behind_mesh: bool = False
    dev: bool = False


def bind(server: grpc.aio.Server, listener: Listener) -> int:
    """Bind the server and return the port, which is 0 for a Unix socket.

    Raises:
        SettingsError: The address is malformed, unprotected, taken or not this machine's.
    """
    check_listener(listener)
    try:
        if listener.credentials is None:
            bound = server.add_insecure_port(listener.address)
        else:
            bound = server.add_secure_port(listener.address, listener.credentials)
    except RuntimeError:
        bound = 0
    if _is_unix(listener.address):
        if bound == 0:
            raise SettingsError(f"cannot listen on {listener.address}: is its folder there and writable?")
        return 0
    wanted = _port(listener.address)
    # Checked here and not by `assert`, which vanishes under PYTHONOPTIMIZE.
    if bound == 0 or wanted not in (0, bound):
        raise SettingsError(
            f"cannot listen on {listener.address}: the port is taken, or the address is not of this machine"
        )
    return bound


def check_listener(listener: Listener) -> None:
    """Refuse an address that would be served unprotected.

    Raises:
        SettingsError: The address is malformed; or it is plaintext off loopback without `behind_mesh`; or it
            is off loopback in development.
    """
    if is_loopback(listener.address):
        return
    if listener.dev:
        raise SettingsError(
            f"--dev serves loopback alone, not {listener.address}: listen on 127.0.0.1, [::1] or unix:PATH, "
            "or leave out --dev and give a certificate and a key"
        )
    if listener.credentials is None and not listener.behind_mesh:
        raise SettingsError(
            f"refusing to serve plaintext on {listener.address}: give a certificate and a key, or say "
            "--behind-mesh when a sidecar terminates TLS, or listen on 127.0.0.1, [::1] or unix:PATH"
        )


def is_loopback(address: str) -> bool:
    """Tell whether only this machine can reach the address.

    Raises:
        SettingsError: The address has none of the known forms.
    """
    if _is_unix(address):
        return True
    host = _host(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may resolve to anything. This one is reserved for loopback (RFC 6761).
        return host == "localhost"


def _is_unix(address: str) -> bool:
    return address.startswith(_UNIX_SCHEMES)


def _host(address: str) -> str:
    match = _parts(address)
    return match["six"] or match["host"]


def _port(address: str) -> int:
    return int(_parts(address)["port"])


def _parts(address: str) -> re.Match[str]:
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise SettingsError(
            f"{address!r} is no address to listen on: write HOST:PORT, [IPV6]:PORT or unix:PATH"
        )
    return match
