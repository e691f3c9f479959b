"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(*arguments: str, folder: Path) -> None:
    """Run openssl in a folder, and insist that it worked."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_ca(folder: Path, name: str = "ca") -> Path:
    """Make `<name>.crt` and `<name>.key` of an authority."""
    folder.mkdir(parents=True, exist_ok=True)
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2", "-subj", f"/CN={name}"),
        folder=folder,
    )
    return folder / f"{name}.crt"


def make_certificate(folder: Path, name: str, common_name: str, ca: str = "ca") -> tuple[str, str]:
    """Make `<name>.crt` and `<name>.key`, signed by an authority in the same folder."""
    openssl(
        *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={common_name}"),
        folder=folder,
    )
    (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl(
        *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key"),
        *("-CAcreateserial", "-days", "2", "-out", f"{name}.crt", "-extfile", f"{name}.ext"),
        folder=folder,
    )
    return str(folder / f"{name}.crt"), str(folder / f"{name}.key")
