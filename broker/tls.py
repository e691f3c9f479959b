"""TLS contexts for listeners: 1.2 and up, client certificates if asked for."""

import ssl
from pathlib import Path

from broker.config import ConfigError, Listener


def context(listener: Listener) -> ssl.SSLContext:
    """Make the context of a listener, with one line for a file that cannot be used."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    load(made, listener)
    if listener.require_certificate:
        made.verify_mode = ssl.CERT_REQUIRED
    elif listener.cafile:
        made.verify_mode = ssl.CERT_OPTIONAL
    return made


def load(made: ssl.SSLContext, listener: Listener) -> None:
    """Read the files again; connections made from now on use them."""
    try:
        made.load_cert_chain(listener.certfile, listener.keyfile)
        if listener.cafile and Path(listener.cafile).is_dir():
            made.load_verify_locations(capath=listener.cafile)
        elif listener.cafile:
            made.load_verify_locations(listener.cafile)
        if listener.crlfile:
            made.load_verify_locations(listener.crlfile)
            made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"listener {listener.name!r}: certificate files: {reason} "
            f"({listener.certfile}, {listener.keyfile})"
        ) from None
