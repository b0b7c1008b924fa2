"""Where a service is, and the channels to it."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, Self

import grpc
import grpc.aio

from service_common.channel_options import ChannelOptions, calls_channel_options, session_channel_options

_TARGET: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a service.

    A client has two channels, each with a connection of its own: one for its session and one for calls, so
    that a large body never delays a frame.

    Attributes:
        address: `host:port` or `unix:PATH`.
        credentials: For TLS; None for plaintext.
    """

    address: str
    credentials: grpc.ChannelCredentials | None = None

    def __post_init__(self) -> None:
        if not is_address(self.address):
            raise ValueError(f"{self.address!r} is not host:port or unix:PATH")

    @classmethod
    def with_tls(
        cls,
        address: str,
        roots: bytes | None = None,
        *,
        certificate: bytes | None = None,
        private_key: bytes | None = None,
    ) -> Self:
        """Return a connection with TLS.

        Args:
            address: `host:port` or `unix:PATH`.
            roots: PEM certificates to trust alone; None for those that this system trusts.
            certificate: Chain of the client's own certificate, PEM; None for none.
            private_key: Key of that certificate, PEM.

        Raises:
            ValueError: The address cannot be used.
        """
        return cls(address, grpc.ssl_channel_credentials(roots, private_key, certificate))

    @property
    def is_local(self) -> bool:
        """Whether the service is on this machine, so that plaintext stays on it."""
        host = _host(self.address)
        if host is None or host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def session_channel(self) -> grpc.aio.Channel:
        """Return a new channel for a session."""
        return self._channel(session_channel_options())

    def calls_channel(self) -> grpc.aio.Channel:
        """Return a new channel for calls."""
        return self._channel(calls_channel_options())

    def blocking_channel(self) -> grpc.Channel:
        """Return a new channel for calls that block."""
        if self.credentials is None:
            return grpc.insecure_channel(self.address, options=calls_channel_options())
        return grpc.secure_channel(self.address, self.credentials, options=calls_channel_options())

    def _channel(self, options: ChannelOptions) -> grpc.aio.Channel:
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        return grpc.aio.secure_channel(self.address, self.credentials, options=options)


def is_address(text: str) -> bool:
    """Tell whether the text is `host:port` or `unix:PATH`."""
    target = _TARGET.fullmatch(text)
    return text.startswith("unix:") or (target is not None and 1 <= int(target["port"]) <= 65_535)


def _host(address: str) -> str | None:
    target = _TARGET.fullmatch(address)
    return None if target is None else target["host"].strip("[]")
