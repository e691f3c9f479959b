"""A small certificate authority for tests, made with the openssl command."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificates:
    """Files of one authority, a server and a client; everything is made on construction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        _openssl(
            folder, "req", "-x509", *_CURVE, "-days", "2", "-subj", "/CN=Test CA",
            "-keyout", "ca.key", "-out", "ca.pem",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        self.server, self.server_key = self._issue("server", "localhost")
        self.client, self.client_key = self._issue("client", "sensor-7")

    def _issue(self, name: str, common_name: str) -> tuple[Path, Path]:
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1\n")
        _openssl(
            self.folder, "req", *_CURVE, "-subj", f"/CN={common_name}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr",
        )  # fmt: skip
        _openssl(
            self.folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", f"{name}.pem",
        )  # fmt: skip
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def context(self, *, with_client: bool = False) -> ssl.SSLContext:
        """Make a client's context that trusts the authority."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if with_client:
            context.load_cert_chain(self.client, self.client_key)
        return context

    def listener(self, kind: str, *more: str) -> str:
        """Write a listener for the broker's configuration."""
        lines = [
            "[[listener]]",
            f'kind = "{kind}"',
            "port = 0",
            f'certfile = "{self.server}"',
            f'keyfile = "{self.server_key}"',
            *more,
        ]
        return "\n".join(lines) + "\n"


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
