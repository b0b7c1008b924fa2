"""TLS of a server, from files that may be replaced while it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import structlog

from service_common.errors import SettingsError

_log: Final = structlog.get_logger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files.

    Attributes:
        client_ca: roots of client certificates; with them every client needs a certificate.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials that follow the files: a connection gets what is in them when it begins.

    Raises:
        SettingsError: a file cannot be read.
    """
    try:
        follower = _Follower(files)
    except OSError as error:
        raise SettingsError(f"TLS: {error.filename}: {error.strerror}") from None
    return grpc.dynamic_ssl_server_credentials(
        follower.current,
        # None, which its types do not know, tells the library that nothing has changed.
        follower.fetch,  # type: ignore[arg-type]
        require_client_authentication=files.client_ca is not None,
    )


class _Follower:
    """Reads the files again when one of them is another than before."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp = self._stamps()
        self.current = self._read()

    def fetch(self) -> "grpc.ServerCertificateConfiguration | None":
        """What a new connection is served with; None for what the last one was."""
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return None
            self.current = self._read()
        except OSError as error:
            # Whoever replaces the files may be half done; the next connection looks again.
            _log.warning("tls_files_unreadable", error_type=type(error).__name__)
            return None
        self._stamp = stamp
        _log.info("tls_files_replaced")
        return self.current

    def _read(self) -> "grpc.ServerCertificateConfiguration":
        files = self._files
        roots = None if files.client_ca is None else files.client_ca.read_bytes()
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], roots)

    def _stamps(self) -> _Stamp:
        paths = (self._files.certificate, self._files.key, self._files.client_ca)
        found = [path.stat() for path in paths if path is not None]
        return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in found)
