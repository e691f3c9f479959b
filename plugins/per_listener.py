"""Users and rules for the clients of some listeners only.

`ListenerUsers` and `ListenerAcl` hold another plugin and ask it about the clients of their
listeners; of others they have no opinion. Somebody whose listener is not known, because it
is away or came through HTTP, is never allowed by them what their file does not allow.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from plugins.api import Broker, Client, Credentials, Plugin, SubscribeRequest, Verdict
from plugins.loader import load
from protocol.message import Message

HTTP = "http"
AWAY = ""


class PerListenerSettings(msgspec.Struct, forbid_unknown_fields=True):
    """Which listeners, and which plugin for them."""

    listeners: list[str]
    use: str
    settings: dict[str, Any] = {}


class PerListener(Plugin):
    """A plugin for some listeners."""

    Settings: ClassVar[type[msgspec.Struct]] = PerListenerSettings
    settings: PerListenerSettings

    def __init__(self, settings: PerListenerSettings) -> None:
        super().__init__(settings)
        self._listeners = frozenset(settings.listeners)
        self._inner = load(settings.use, settings.settings)

    def concerns(self, client: Client) -> bool:
        """Tell whether a client came through one of the listeners."""
        return client.listener in self._listeners

    async def start(self, broker: Broker) -> None:
        """Start the plugin."""
        await self._inner.start(broker)

    async def stop(self) -> None:
        """Stop the plugin."""
        await self._inner.stop()

    def reload(self) -> None:
        """Read its files again."""
        self._inner.reload()


class ListenerUsers(PerListener):
    """Asks for passwords on some listeners."""

    def authenticate(self, credentials: Credentials) -> Verdict:
        """Ask the plugin about clients of its listeners."""
        if not self.concerns(credentials.client):
            return None
        return self._inner.authenticate(credentials)


class ListenerAcl(PerListener):
    """Grants rights on some listeners."""

    def authorise_publish(self, client: Client, message: Message) -> Verdict:
        """Ask the plugin; the will of a client that is gone is published only if it may be."""
        if self.concerns(client):
            return self._inner.authorise_publish(client, message)
        if client.listener in (HTTP, AWAY) and self._inner.authorise_publish(client, message) is (
            False
        ):
            return False
        return None

    def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> Verdict:
        """Ask the plugin."""
        if self.concerns(client):
            return self._inner.authorise_subscribe(client, request)
        if client.listener == HTTP and self._inner.authorise_subscribe(client, request) is False:
            return False
        return None

    def authorise_receive(self, client: Client, message: Message) -> bool | None:
        """Ask the plugin; what is queued for somebody away is judged again when it is sent."""
        if self.concerns(client):
            return self._inner.authorise_receive(client, message)
        if client.listener == HTTP and self._inner.authorise_receive(client, message) is False:
            return False
        return None
