"""amqtt's authentication and topic plugins (amqtt 0.12), run as they are.

    [[plugin]]
    use = "plugins.amqtt_adapter:AmqttPlugins"
    [plugin.settings.plugins."amqtt.plugins.authentication.FileAuthPlugin"]
    password_file = "users"

The settings have the shape of amqtt's own `plugins` section, and amqtt's own manager loads
them. The answers are combined as amqtt combines them: all plugins must agree. What amqtt
asks with a coroutine before every delivery must answer at once here, because it stands in
the delivery: a receive check that waits is refused and counted.

Only who may come in and who may use which topic passes through here; amqtt's events, its
`$SYS` and its persistence are not ours to run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, ClassVar

import msgspec
from amqtt.contexts import Action, BaseContext
from amqtt.errors import PluginError as AmqttPluginError
from amqtt.errors import PluginLoadError
from amqtt.plugins.manager import PluginManager
from amqtt.session import Session

from plugins.api import Broker, Client, Credentials, Plugin, PluginError, SubscribeRequest
from protocol.message import Message

log = logging.getLogger("geomqtt.amqtt")

NAMESPACE = "geomqtt.amqtt"
SESSIONS_KEPT = 10_000


class AmqttSettings(msgspec.Struct, forbid_unknown_fields=True):
    """amqtt's `plugins` section: dotted class name -> its configuration."""

    plugins: dict[str, dict[str, Any]]


class Context(BaseContext):  # type: ignore[misc]
    """What an amqtt plugin may ask of its surroundings."""

    def __init__(self, plugins: dict[str, dict[str, Any]]) -> None:
        super().__init__()
        self.config = {"plugins": plugins}
        self.logger = logging.getLogger(NAMESPACE)


class AmqttPlugins(Plugin):
    """Asks amqtt plugins what they think."""

    Settings: ClassVar[type[msgspec.Struct]] = AmqttSettings
    settings: AmqttSettings

    def __init__(self, settings: AmqttSettings) -> None:
        super().__init__(settings)
        self._sessions: dict[tuple[str, str | None], Any] = {}

    async def start(self, broker: Broker) -> None:
        """Let amqtt load its plugins."""
        self._broker = broker
        self._load()

    def _load(self) -> None:
        try:
            self._manager = PluginManager(
                NAMESPACE, Context(self.settings.plugins), asyncio.get_running_loop()
            )
        except (AmqttPluginError, PluginLoadError) as error:
            cause = error.__cause__ or error
            raise PluginError(f"amqtt plugins: {type(error).__name__}: {cause}") from None
        # amqtt tells them apart in the same way, by their base class.
        self._authenticators = tuple(self._manager._auth_plugins)
        self._topic_plugins = tuple(self._manager._topic_plugins)
        self._sessions.clear()

    async def stop(self) -> None:
        """Let the plugins go."""
        await self._manager.close()

    def reload(self) -> None:
        """Load them again, so that they read their files; the old ones stay if that fails."""
        self._load()

    def _session(self, client: Client) -> Any:
        """Give amqtt's view of a client: the one that it was let in with."""
        session = self._sessions.get((client.client_id, client.username))
        return session if session is not None else self._keep(_new_session(client))

    def _keep(self, session: Any) -> Any:
        # Plugins leave notes on a session, and making one takes amqtt a millisecond.
        if len(self._sessions) >= SESSIONS_KEPT:
            self._sessions.clear()
        self._sessions[session.client_id, session.username] = session
        return session

    def authenticate(self, credentials: Credentials) -> Awaitable[bool | None] | None:
        """Ask the authentication plugins; without any, this is for others to say."""
        if not self._authenticators:
            return None
        session = _new_session(credentials.client)
        password = credentials.password
        session.password = password.decode(errors="replace") if password is not None else None
        return self._authenticate(session)

    async def _authenticate(self, session: Any) -> bool:
        answers = [await each.authenticate(session=session) for each in self._authenticators]
        session.password = None
        known = [answer for answer in answers if answer is not None]
        if not known or not all(known):
            return False
        self._keep(session)
        return True

    def authorise_publish(self, client: Client, message: Message) -> Awaitable[bool | None] | None:
        """Ask the topic plugins."""
        if not self._topic_plugins:
            return None
        return self._topic(client, message.topic, Action.PUBLISH)

    def authorise_subscribe(
        self, client: Client, request: SubscribeRequest
    ) -> Awaitable[bool | None] | None:
        """Ask the topic plugins."""
        if not self._topic_plugins:
            return None
        return self._topic(client, request.filter, Action.SUBSCRIBE)

    def authorise_receive(self, client: Client, message: Message) -> bool | None:
        """Ask the topic plugins, who must answer without waiting."""
        if not self._topic_plugins:
            return None
        waiting = self._topic(client, message.topic, Action.RECEIVE)
        try:
            waiting.send(None)
        except StopIteration as answer:
            return bool(answer.value)
        waiting.close()
        self._broker.count("amqtt_receive_checks_that_wait")
        log.error("a topic plugin waits before a delivery to %r: refused", client.client_id)
        return False

    def _topic(self, client: Client, topic: str, action: Action) -> Coroutine[Any, Any, bool]:
        return self._all_agree(self._session(client), topic, action)

    async def _all_agree(self, session: Any, topic: str, action: Action) -> bool:
        for plugin in self._topic_plugins:
            if not await plugin.topic_filtering(session=session, topic=topic, action=action):
                return False
        return True


def _new_session(client: Client) -> Any:
    session = Session()
    session.client_id = client.client_id
    session.username = client.username
    host, _, port = client.address.rpartition(":")
    session.remote_address = host or client.address
    session.remote_port = int(port) if port.isdigit() else None
    return session
