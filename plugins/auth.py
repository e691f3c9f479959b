"""Users with passwords, from a file (`users_file` in the configuration).

    passwords       hashes and the file
    this module     who waits for which hash, and how often somebody may guess

Hashes are checked in a few threads of their own, because one check takes as long as
thousands of messages. A user who does not exist costs the same time as a wrong password.
Clients without a user name are none of this plugin's business: whether they come in is
what the listener's `allow_anonymous` says.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import msgspec

from plugins.api import Broker, Credentials, Plugin, PluginError
from plugins.passwords import BadUsersFile, make_hash, read_users, verify

log = logging.getLogger("geomqtt.users")

CACHED_LOGINS = 10_000
WATCHED_ADDRESSES = 10_000
FREE_FAILURES = 3  # typing errors that cost nothing
FIRST_DELAY_S = 0.1  # doubled with every further failure


class UsersSettings(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of the users plugin."""

    file: str
    threads: int = 2
    max_waiting: int = 1_000  # logins that wait for a thread; more are refused
    remember_s: float = 300.0  # how long a good password is known without hashing; 0: not at all
    max_delay_s: float = 2.0  # the longest that failures slow an address down
    forget_failures_s: float = 60.0


class Guesses:
    """Failed logins by address, and what they cost the next one. Bounded in memory."""

    def __init__(
        self, max_delay_s: float, forget_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_delay_s = max_delay_s
        self._forget_s = forget_s
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def failed(self, address: str) -> None:
        """Note a failed login."""
        key = _network(address)
        count, since = self._failures.pop(key, (0, 0.0))
        now = self._clock()
        if now - since > self._forget_s:
            count = 0
        self._failures[key] = (count + 1, now)
        if len(self._failures) > WATCHED_ADDRESSES:
            self._failures.popitem(last=False)

    def delay_s(self, address: str) -> float:
        """Tell how long the next login from an address must wait.

        A login that succeeds does not make up for failures: somebody with one good
        password could otherwise guess all others at full speed.
        """
        count, since = self._failures.get(_network(address), (0, 0.0))
        if count <= FREE_FAILURES or self._clock() - since > self._forget_s:
            return 0.0
        return min(FIRST_DELAY_S * 2.0 ** min(count - FREE_FAILURES - 1, 32), self._max_delay_s)


def _network(address: str) -> str:
    """Whom to hold responsible: a host, or the /64 that one IPv6 customer has to himself."""
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if found.version == 6:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return host


class Users(Plugin):
    """Lets in who knows a password of the users file."""

    Settings: ClassVar[type[msgspec.Struct]] = UsersSettings
    settings: UsersSettings

    def __init__(self, settings: UsersSettings) -> None:
        super().__init__(settings)
        self._users = self._read()
        self._nobody = make_hash(os.urandom(16))  # what unknown users of an empty file meet
        self._key = os.urandom(32)
        self._good: OrderedDict[bytes, float] = OrderedDict()  # proven logins -> until when
        self._guesses = Guesses(settings.max_delay_s, settings.forget_failures_s)
        self._waiting = 0
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="password")

    def _read(self) -> dict[str, str]:
        try:
            return read_users(self.settings.file)
        except BadUsersFile as error:
            raise PluginError(f"users file {error}") from None

    async def start(self, broker: Broker) -> None:
        """Say how many there are; an empty file is easily a mistake."""
        self._broker = broker
        self._report()

    def _report(self) -> None:
        if self._users:
            log.info("%d users in %s", len(self._users), self.settings.file)
        else:
            log.warning("users file %s is empty: nobody can log in", self.settings.file)

    async def stop(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def reload(self) -> None:
        """Read the file again; clients that are connected stay."""
        self._users = self._read()
        self._good.clear()
        self._report()

    def authenticate(self, credentials: Credentials) -> bool | Awaitable[bool | None] | None:
        """Check the password of whoever names a user."""
        client = credentials.client
        if client.username is None:
            return None
        if credentials.password is None and client.username == credentials.certificate_name:
            return None  # the listener knows what its certificates prove
        delay_s = self._guesses.delay_s(client.address)
        proof = self._proof(client.username, credentials.password or b"")
        if not delay_s and self._remembered(proof):
            return True
        if self._waiting >= self.settings.max_waiting:
            self._broker.count("logins_refused_busy")
            log.warning("login of %r refused: %d are waiting", client.username, self._waiting)
            return False
        return self._check(credentials, proof, delay_s)

    def _proof(self, username: str, password: bytes) -> bytes:
        """Make what stands for a login in memory: useless without this process's key."""
        name = username.encode(errors="surrogatepass")
        text = len(name).to_bytes(4, "big") + name + password
        return hmac.digest(self._key, text, hashlib.sha256)

    def _remembered(self, proof: bytes) -> bool:
        until = self._good.get(proof)
        return until is not None and time.monotonic() < until

    async def _check(self, credentials: Credentials, proof: bytes, delay_s: float) -> bool:
        client, password = credentials.client, credentials.password
        username = client.username
        assert username is not None
        self._waiting += 1
        try:
            if delay_s:
                self._broker.count("logins_slowed")
                await asyncio.sleep(delay_s)
            users = self._users
            known = users.get(username)
            loop = asyncio.get_running_loop()
            same = await loop.run_in_executor(
                self._pool, verify, password or b"", known or self._stand_in(username)
            )
        finally:
            self._waiting -= 1
        # The file may have been read again while the thread was at work.
        if same and known is not None and password is not None and self._users is users:
            self._remember(proof)
            return True
        self._guesses.failed(client.address)
        self._broker.count("logins_failed")
        log.warning("login of %r from %s failed", username, client.address)
        return False

    def _stand_in(self, username: str) -> str:
        """Choose a hash for a user who does not exist: always the same one for one name.

        Taken from the file, so that strangers cost what the file's own users cost,
        whatever mixture of hashes it holds.
        """
        if not self._users:
            return self._nobody
        number = int.from_bytes(self._proof(username, b"stand-in")[:8], "big")
        return list(self._users.values())[number % len(self._users)]

    def _remember(self, proof: bytes) -> None:
        if self.settings.remember_s > 0:
            self._good[proof] = time.monotonic() + self.settings.remember_s
            if len(self._good) > CACHED_LOGINS:
                self._good.popitem(last=False)
