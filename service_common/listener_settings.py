"""The settings that say where a server listens, and how what it serves is protected."""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from service_common.listeners import Listener, check_listener
from service_common.settings import ServerSettings
from service_common.tls import TlsFiles, server_credentials


class ListenerSettings(ServerSettings):
    """Addresses, TLS, and what may be served without it. `admin_listen` is a field of each server."""

    listen: str = Field("", description="Address to serve on: HOST:PORT, [IPV6]:PORT or unix:PATH.")
    dev: bool = Field(False, description="Serve for development: insecure, loopback only.")
    behind_mesh: bool = Field(
        False, description="A sidecar terminates TLS: serve plaintext off loopback too."
    )
    tls_certificate: Path | None = Field(
        None, description="Certificate chain to serve TLS with, PEM; read again when it changes."
    )
    tls_key: Path | None = Field(None, description="Private key of the certificate, PEM.")
    tls_client_ca: Path | None = Field(
        None, description="Roots of client certificates, PEM: then every caller needs a certificate."
    )
    admin_listen: str = Field("", description="Address of a listener for operators alone.")

    @model_validator(mode="after")
    def _protected(self) -> Self:
        if self.dev and self.behind_mesh:
            raise ValueError("--dev and --behind-mesh exclude each other: development is loopback only")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("--tls-certificate and --tls-key go together")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("--tls-client-ca is for a TLS listener: give --tls-certificate and --tls-key")
        if self.tls_certificate is None or self.dev:
            for address in filter(None, (self.listen, self.admin_listen)):
                check_listener(Listener(address, behind_mesh=self.behind_mesh, dev=self.dev))
        return self

    def listeners(self, addresses: Iterable[str]) -> list[Listener]:
        """Listeners at those of the addresses that are set, all with the same certificate.

        Raises:
            SettingsError: a file of the certificate cannot be read.
        """
        credentials = None
        if self.tls_certificate is not None and self.tls_key is not None:
            files = TlsFiles(self.tls_certificate, self.tls_key, self.tls_client_ca)
            credentials = server_credentials(files)
        return [
            Listener(address, credentials, behind_mesh=self.behind_mesh, dev=self.dev)
            for address in addresses
            if address
        ]
