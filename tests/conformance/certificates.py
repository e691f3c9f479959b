"""A small certificate authority with a server and a client, and what is made of them."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.integration.certificates import make_ca, make_certificate


class Certificates:
    """Files of one authority, a server and a client; everything is made on construction."""

    def __init__(self, folder: Path) -> None:
        self.ca = make_ca(folder)
        self.server, self.server_key = make_certificate(folder, "server", "localhost")
        self.client, self.client_key = make_certificate(folder, "client", "sensor-7")

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
