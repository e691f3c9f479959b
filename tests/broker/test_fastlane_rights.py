"""Under an ACL the fast lane carries what the ACL allows, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import PluginEntry
from plugins.api import Client, Plugin
from protocol.message import Message
from tests.broker.live import Live, Peer, running
from tests.conformance.raw import publish

RULES = """
[[rule]]
deny = ["publish"]
topics = ["quiet/%c"]
[[rule]]
allow = ["publish", "subscribe"]
topics = ["#"]
[[rule]]
allow = ["receive"]
topics = ["open/#", "quiet/#"]
[[rule]]
allow = ["receive"]
topics = ["placed"]
region = "BBOX(0,0,10,10)"
[[rule]]
allow = ["receive"]
topics = ["only/%c"]
"""


def guarded(tmp_path: Path, text: str = RULES) -> list[PluginEntry]:
    (tmp_path / "acl.toml").write_text(text)
    return [PluginEntry(use="plugins.acl:Acl", settings={"file": str(tmp_path / "acl.toml")})]


async def send(source: Peer, live: Live, topic: str, qos: int) -> bool:
    """Send a message three times in one read; tell whether the fast lane was open for it."""
    link = next(each for each in live.broker.links if each.name == "'source'")
    settled = set(link.settled or ())
    routes = set(live.broker.router.fast_routes)
    source.send(publish(topic, "x", qos=qos, packet_id=7 if qos else 0) * 3)
    if qos:
        await source.expect(b"\x40\x02\x00\x07" * 3)
    await source.expect_nothing()
    return link.fast and topic.encode() in settled & routes


@pytest.mark.parametrize("qos", [0, 1])
async def test_only_what_is_allowed_passes_with_any_speed(tmp_path: Path, qos: int) -> None:
    async with running(plugin=guarded(tmp_path)) as live:
        peers = {name: await live.connect(name) for name in ("c1", "c2")}
        for peer in peers.values():
            await peer.subscribe("#", 0)
        source = await live.connect("source")
        expected = {"c1": 0, "c2": 0}
        for turn in range(3):
            for topic in ("open/a", "quiet/source", "closed", "placed", "only/c1"):
                fast = await send(source, live, topic, qos)
                assert fast is (turn > 0 and topic in ("open/a", "closed", "only/c1"))
                for name, peer in peers.items():
                    if topic in ("open/a", f"only/{name}"):
                        await peer.expect(publish(topic, "x") * 3)
                        expected[name] += 3
                    await peer.expect_nothing()
        assert expected == {"c1": 18, "c2": 9}
        assert live.counts["publish_sent"] == 27
        assert live.counts["messages_denied"] == 9


async def test_a_right_that_is_taken_away_stops_the_fast_lane_at_once(tmp_path: Path) -> None:
    async with running(plugin=guarded(tmp_path)) as live:
        peer = await live.connect("c1")
        await peer.subscribe("#", 0)
        source = await live.connect("source")
        for _ in range(2):
            await send(source, live, "open/a", 0)
        await peer.expect(publish("open/a", "x") * 6)
        guarded(tmp_path, RULES.replace('"open/#", ', ""))
        live.server.reload()
        await send(source, live, "open/a", 0)
        await peer.expect_nothing()
        guarded(tmp_path, RULES.replace('"quiet/%c"', '"open/a"'))
        live.server.reload()
        await send(source, live, "open/a", 0)
        await peer.expect_nothing()
        assert live.counts["messages_denied"] == 3
        guarded(tmp_path)
        live.server.reload()
        await send(source, live, "open/a", 0)
        await peer.expect(publish("open/a", "x") * 3)


class Nervous(Plugin):
    """Settles nothing without an accident."""

    settles_topics = True

    def authorise_publish(self, client: Client, message: Message) -> bool:
        """Allow all."""
        return True

    def authorise_receive(self, client: Client, message: Message) -> bool:
        """Allow all."""
        return True

    def settles_publish(self, client: Client, topic: str) -> bool:
        """Fail."""
        raise RuntimeError("no")

    def settles_receive(self, client: Client, topic: str) -> bool | None:
        """Fail."""
        raise RuntimeError("no")


async def test_a_plugin_that_fails_to_settle_is_asked_about_every_message() -> None:
    use = f"{Nervous.__module__}:Nervous"
    async with running(plugin=[PluginEntry(use=use)]) as live:
        peer = await live.connect("c1")
        await peer.subscribe("#", 0)
        source = await live.connect("source")
        for _ in range(3):
            assert not await send(source, live, "t", 0)
            await peer.expect(publish("t", "x") * 3)
        assert live.counts["plugin_errors"] > 0
