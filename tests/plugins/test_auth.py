"""Users: who is let in, what strangers learn from it, and how guessing is slowed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.broker import Broker
from broker.config import Config
from plugins.api import Client, Credentials, PluginError
from plugins.auth import FREE_FAILURES, Guesses, Users, UsersSettings
from plugins.passwords import make_hash

SHA512 = (
    "$6$AAECAwQFBgcICQoL$"
    "JqsxEv/ucyxjA5DKsQ+Y8CDWaQDNQI9FpAkmfwAqWfwZLk/JEGgM0EpylrJHAZKKyFQjJeZ3nFaHjPzOzPPmPw=="
)


async def users(tmp_path: Path, text: str, **wish: Any) -> tuple[Users, Broker]:
    path = tmp_path / "users"
    path.write_text(text)
    plugin = Users(UsersSettings(str(path), **wish))
    broker = Broker(Config(), [plugin])
    await plugin.start(broker)
    return plugin, broker


def credentials(
    username: str | None, password: bytes | None, certificate_name: str | None = None
) -> Credentials:
    client = Client("c", username, "192.0.2.1:5000", "tcp", username is None)
    return Credentials(client, password, certificate_name)


async def verdict(plugin: Users, *args: Any) -> bool | None:
    found = plugin.authenticate(credentials(*args))
    return found if found is None or isinstance(found, bool) else await found


async def test_a_user_is_let_in_with_the_right_password_only(tmp_path: Path) -> None:
    plugin, broker = await users(tmp_path, f"ann:{make_hash(b'secret')}\nbob:{SHA512}\n")
    assert await verdict(plugin, "ann", b"secret") is True
    assert await verdict(plugin, "bob", b"secret") is True
    assert await verdict(plugin, "ann", b"wrong") is False
    assert await verdict(plugin, "ann", None) is False
    assert await verdict(plugin, "ann", b"") is False
    assert await verdict(plugin, "nobody", b"secret") is False
    assert await verdict(plugin, "", b"secret") is False
    assert broker.counts()["logins_failed"] == 5
    await plugin.stop()


async def test_who_names_no_user_is_left_to_the_listener(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, "")
    assert await verdict(plugin, None, None) is None


async def test_a_certificate_needs_no_password_but_only_for_its_own_name(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, f"ann:{SHA512}\n")
    assert await verdict(plugin, "ann", None, "ann") is None
    assert await verdict(plugin, "ann", None, "bob") is False
    assert await verdict(plugin, "ann", b"wrong", "ann") is False
    await plugin.stop()


async def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, "# nobody yet\n")
    assert await verdict(plugin, "ann", b"") is False
    assert await verdict(plugin, "ann", b"secret") is False
    await plugin.stop()


async def test_an_unknown_user_costs_a_hash_of_the_kind_the_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = make_hash(b"secret")
    asked: list[str] = []

    def spy(password: bytes, against: str) -> bool:
        asked.append(against)
        return True

    plugin, _ = await users(tmp_path, f"ann:{hashed}\nbob:{SHA512}\n")
    monkeypatch.setattr("plugins.auth.verify", spy)
    for name in ("x", "y", "z", "v", "w", "x"):
        assert await verdict(plugin, name, b"secret") is False
    assert len(asked) == 6
    assert set(asked) <= {hashed, SHA512}
    assert asked[0] == asked[-1], "asking twice must not show that a name is unknown"
    await plugin.stop()


async def test_checking_passwords_leaves_the_loop_free(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, f"ann:{make_hash(b'secret')}\n")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await verdict(plugin, "ann", b"secret") is True
    counting.cancel()
    assert turns > 10
    await plugin.stop()


async def test_a_good_password_is_remembered_until_the_file_is_read_again(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, f"ann:{SHA512}\n")
    login = credentials("ann", b"secret")
    waiting = plugin.authenticate(login)
    assert not isinstance(waiting, bool | None)
    assert await waiting is True
    assert plugin.authenticate(login) is True
    assert plugin.authenticate(credentials("ann", b"Secret")) is not True
    (tmp_path / "users").write_text(f"bob:{SHA512}\n")
    plugin.reload()
    assert await verdict(plugin, "ann", b"secret") is False
    assert await verdict(plugin, "bob", b"secret") is True
    assert b"secret" not in repr(vars(plugin)).encode()
    await plugin.stop()


async def test_nothing_is_remembered_when_that_is_switched_off(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, f"ann:{SHA512}\n", remember_s=0.0)
    assert await verdict(plugin, "ann", b"secret") is True
    assert not plugin._good
    await plugin.stop()


async def test_a_login_under_way_does_not_survive_a_reload(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, f"ann:{SHA512}\n")
    waiting = plugin.authenticate(credentials("ann", b"secret"))
    assert not isinstance(waiting, bool | None)
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)  # the check is with its thread now
    (tmp_path / "users").write_text("")
    plugin.reload()
    assert await task is False
    await plugin.stop()


async def test_a_broken_file_at_reload_keeps_the_old_users(tmp_path: Path) -> None:
    plugin, _ = await users(tmp_path, f"ann:{SHA512}\n")
    (tmp_path / "users").write_text("nonsense\n")
    with pytest.raises(PluginError, match="line 1: expected user:hash"):
        plugin.reload()
    assert await verdict(plugin, "ann", b"secret") is True
    await plugin.stop()


async def test_more_logins_than_may_wait_are_refused_at_once(tmp_path: Path) -> None:
    plugin, broker = await users(tmp_path, f"ann:{make_hash(b'x')}\n", max_waiting=2, threads=1)
    waiting = [plugin.authenticate(credentials("ann", b"x")) for _ in range(2)]
    tasks = [asyncio.ensure_future(each) for each in waiting if not isinstance(each, bool | None)]
    await asyncio.sleep(0)
    assert plugin.authenticate(credentials("ann", b"x")) is False
    assert broker.counts()["logins_refused_busy"] == 1
    assert await asyncio.gather(*tasks) == [True, True]
    await plugin.stop()


async def test_failures_slow_even_a_good_login_from_the_same_address(tmp_path: Path) -> None:
    plugin, broker = await users(tmp_path, f"ann:{SHA512}\n", max_delay_s=0.01)
    assert await verdict(plugin, "ann", b"secret") is True
    for number in range(FREE_FAILURES + 1):
        assert await verdict(plugin, "ann", b"wrong%d" % number) is False
    assert "logins_slowed" not in broker.counts()
    assert await verdict(plugin, "ann", b"secret") is True
    assert broker.counts()["logins_slowed"] == 1
    await plugin.stop()


class Clock:
    """Time as a test wants it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_delays_double_up_to_a_limit_and_are_forgotten() -> None:
    clock = Clock()
    guesses = Guesses(2.0, 60.0, clock)
    delays = []
    for _ in range(FREE_FAILURES + 7):
        guesses.failed("192.0.2.1:1")
        delays.append(guesses.delay_s("192.0.2.1:999"))
    assert delays == [0.0] * FREE_FAILURES + [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert guesses.delay_s("192.0.2.2:1") == 0.0
    clock.now += 60.5
    assert guesses.delay_s("192.0.2.1:1") == 0.0


def test_all_addresses_of_one_ipv6_customer_count_as_one() -> None:
    guesses = Guesses(2.0, 60.0, Clock())
    for number in range(FREE_FAILURES + 1):
        guesses.failed(f"[2001:db8::{number}]:1")
    assert guesses.delay_s("[2001:db8::ffff]:1") > 0
    assert guesses.delay_s("[2001:db8:0:1::1]:1") == 0.0


def test_the_addresses_that_are_watched_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins.auth.WATCHED_ADDRESSES", 100)
    guesses = Guesses(2.0, 60.0, Clock())
    for _ in range(FREE_FAILURES + 1):
        guesses.failed("192.0.2.1:1")
    for number in range(99):
        guesses.failed(f"198.51.100.{number}:1")
    assert guesses.delay_s("192.0.2.1:1") > 0
    guesses.failed("203.0.113.1:1")
    assert guesses.delay_s("192.0.2.1:1") == 0.0
    assert len(guesses._failures) == 100
