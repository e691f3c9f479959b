"""Who is asking, and what they may: the same users and rights as over MQTT.

Basic credentials go to the plugins that know users; a bearer token stands for the user
that the configuration gives it to. Without credentials a request is anonymous, and whether
that will do is what `allow_anonymous` of the HTTP door says.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request

from plugins.api import Broker, Client, Credentials, SubscribeRequest
from plugins.rest_bridge.problems import Problem
from protocol.message import Message

LISTENER = "http"
CLIENT_ID = "rest"  # the client id of what is published here; `%c` in an ACL
CHALLENGE = {"WWW-Authenticate": 'Basic realm="geomqtt", charset="UTF-8", Bearer realm="geomqtt"'}


class Access:
    """The door keeper."""

    def __init__(self, broker: Broker, tokens: Mapping[str, str]) -> None:
        self._broker = broker
        # By digest, so that how long a look-up takes says nothing about the token.
        self._tokens = {_digest(token): user for token, user in tokens.items()}

    async def who(self, request: Request) -> Client:
        """Find out who is asking, or refuse with 401."""
        header = request.headers.get("authorization")
        peer = request.client
        address = f"{peer.host}:{peer.port}" if peer is not None else ""
        if header is None:
            client = Client(CLIENT_ID, None, address, LISTENER, anonymous=True)
            if await self._broker.authenticate(Credentials(client, None)):
                return client
            raise _unauthorised("this needs a user name and password, or a token")
        scheme, _, rest = header.partition(" ")
        if scheme.lower() == "bearer":
            user = self._tokens.get(_digest(rest.strip()))
            if user is None:
                raise _unauthorised("unknown token")
            return Client(CLIENT_ID, user, address, LISTENER)
        if scheme.lower() != "basic":
            raise _unauthorised(f"unknown scheme {scheme[:40]!r}: Basic or Bearer")
        username, password = _basic(rest)
        client = Client(CLIENT_ID, username, address, LISTENER)
        if await self._broker.authenticate(Credentials(client, password)):
            return client
        raise _unauthorised("wrong user name or password")

    async def may_see(self, client: Client, request: SubscribeRequest) -> None:
        """Refuse with 403 who may not subscribe to this."""
        if not await self._broker.authorise_subscribe(client, request):
            what = "locations on" if request.sees_locations else "events on"
            raise Problem(HTTPStatus.FORBIDDEN, f"not allowed to see {what} {request.filter!r}")

    async def may_publish(self, client: Client, message: Message) -> None:
        """Refuse with 403 who may not publish this."""
        if not await self._broker.authorise_publish(client, message):
            raise Problem(
                HTTPStatus.FORBIDDEN, f"not allowed to publish this on {message.topic!r}", "topic"
            )


def _unauthorised(detail: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, detail, "Authorization", CHALLENGE)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _basic(text: str) -> tuple[str, bytes]:
    try:
        username, colon, password = base64.b64decode(text, validate=True).partition(b":")
        if not colon:
            raise ValueError
        return username.decode(), password
    except (binascii.Error, ValueError):
        raise _unauthorised("not the Basic form of a user name and password") from None
