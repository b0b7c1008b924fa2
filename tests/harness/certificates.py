"""Certificates of an authority that exists for one test."""

import shutil
import subprocess
from pathlib import Path

import pytest


class Authority:
    """Signs certificates, with the openssl program."""

    def __init__(self, folder: Path) -> None:
        self._openssl = shutil.which("openssl") or ""
        if not self._openssl:
            pytest.skip("openssl is not installed, which makes the certificates of this test")
        self._folder = folder
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        self._run(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=test authority", "-keyout", self._key, "-out", self.certificate,
        )  # fmt: skip

    def issue(self, name: str, alternative: str) -> tuple[Path, Path]:
        """A certificate and its key.

        Args:
            alternative: such as `DNS:localhost` or `URI:spiffe://example.org/worker`.
        """
        request, key = self._folder / f"{name}.csr", self._folder / f"{name}.key"
        certificate, extensions = self._folder / f"{name}.pem", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n", encoding="utf-8")
        self._run(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        self._run(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
            "-days", "2", "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        return certificate, key

    def _run(self, *arguments: object) -> None:
        argv = [self._openssl, *map(str, arguments)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
