"""`geomqtt demo`: life for the map, from simulated vehicles, walkers and dike sensors.

Everybody has a connection of its own, as in real life. Vehicles, the ferry and sensors
publish with GeoMQTT packets, walkers as unmodified MQTT clients do, with `$geo/` topics;
what moves also says where it is, and a few subscribe to what is near them or inside a
fence. What is where is in `demo_world`, who does what in `demo_actors`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from geomqtt.client import Client
from geomqtt.demo_actors import Actor, Event, Ferry, Sensor, Vehicle, Walker
from geomqtt.demo_progress import Progress, make_progress
from geomqtt.demo_world import (
    HARBOUR,
    ISLAND,
    MAINLAND_DIKE,
    NORDSTRAND_DIKE,
    PELLWORM_DIKE,
    Spot,
    street_map,
)
from geomqtt.errors import GeoMQTTError

SENSORS = ((PELLWORM_DIKE, 12), (MAINLAND_DIKE, 10), (NORDSTRAND_DIKE, 4))
SORTS = ("car", "bus", "car", "van")
RESCUERS = (2, 4, 7)  # vehicles that want to hear what is near them, all in different towns
GUIDES = (0, 1, 2)  # walkers who do
CONNECTS_AT_ONCE = 25
MOVE_EVERY_S = 1.0
GOLDEN = 0.618034  # its multiples spread evenly between whole numbers, in any order of arrival


def add_parsers(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="bring the map to life",
        description="Simulate vehicles, walkers and dike sensors on the North Sea coast "
        "against a running broker, until Ctrl-C.",
        add_help=False,
    )
    add = parser.add_argument
    add("--help", action="help", help="show this help and exit")
    add("-h", dest="host", metavar="HOST", default="localhost", help="broker (localhost)")
    add("-p", dest="port", type=_port, metavar="PORT", default=1883, help="its port (1883)")
    add("-u", dest="username", metavar="NAME", help="user name")
    add("-P", dest="password", metavar="PASSWORD", help="password")
    add("--rate", type=_positive, default=100.0, metavar="N", help="events a second (100)")
    add("--vehicles", type=_count, default=40, metavar="N",
        help="vehicles, and half as many walkers (40)")  # fmt: skip
    add("--seconds", type=_positive, metavar="S", help="stop after S seconds")
    parser.set_defaults(run=run)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 5000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 5000")
    return number


def _port(text: str) -> int:
    number = int(text)
    if not 0 < number < 65_536:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 65535")
    return number


def run(args: argparse.Namespace) -> int:
    """Play until the time is over or the user has had enough, and return the exit code."""
    if args.password is not None and args.username is None:
        print("geomqtt demo: -P needs a user name: give one with -u", file=sys.stderr)
        return 1
    # Whoever loses its connection says so in the progress, not in a hundred lines.
    logging.getLogger("geomqtt").addHandler(logging.NullHandler())
    logging.getLogger("geomqtt").propagate = False
    try:
        asyncio.run(_play(args))
    except (GeoMQTTError, ValueError) as error:
        print(f"geomqtt demo: {error}", file=sys.stderr)
        return 1
    return 0


def cast(vehicles: int, now_ms: int) -> Iterator[Actor]:
    """Give everybody who takes part."""
    streets = street_map()
    number = 0
    for line, count in SENSORS:
        for at in line.evenly(count):
            number += 1
            yield Sensor(number, at, seed=number)
    yield Ferry(now_ms)
    for each in range(vehicles):
        yield Vehicle(str(each + 1), SORTS[each % len(SORTS)], streets, seed=1000 + each)
    for each in range(vehicles // 2):
        yield Walker(each + 1, streets, seed=2000 + each)


async def _play(args: argparse.Namespace) -> None:
    actors = list(cast(args.vehicles, _now_ms()))
    stage = Stage(args, len(actors))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    progress = make_progress(args)
    try:
        # One goes first: a wrong address or password is one error, not a hundred.
        await stage.enter(actors[0])
        gate = asyncio.Semaphore(CONNECTS_AT_ONCE)

        async def enter(actor: Actor) -> None:
            async with gate:
                await stage.enter(actor)

        await asyncio.gather(*(enter(actor) for actor in actors[1:]), stage.enter_watchers())
        await _until(stop, args.seconds, stage, progress)
    finally:
        await stage.leave()
        progress.close(stage.totals())


async def _until(
    stop: asyncio.Event, seconds: float | None, stage: Stage, progress: Progress
) -> None:
    ends_at = float("inf") if seconds is None else time.monotonic() + seconds
    while not stop.is_set() and (left_s := ends_at - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(min(progress.interval_s, left_s)):
                await stop.wait()
        except TimeoutError:
            stage.check()
            progress.show(stage.totals())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Stage:
    """Keeps everybody connected and acting, and counts."""

    def __init__(self, args: argparse.Namespace, actors: int) -> None:
        self._args = args
        self._interval_s = actors / args.rate  # between two acts of one actor
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._sent: Counter[str] = Counter()
        self._members: Counter[str] = Counter()
        self._received = 0
        self._started_at = time.monotonic()

    def totals(self) -> dict[str, Any]:
        """Give the numbers for the progress."""
        return {
            "seconds": time.monotonic() - self._started_at,
            "connected": sum(client.connected for client in self._clients),
            "clients": len(self._clients),
            "members": dict(self._members),
            "sent": dict(self._sent),
            "received": self._received,
        }

    async def _connect(self, client_id: str) -> Client:
        client = Client(
            self._args.host,
            self._args.port,
            client_id,
            username=self._args.username,
            password=self._args.password,
        )
        await client.connect()
        self._clients.append(client)
        return client

    async def enter(self, actor: Actor) -> None:
        """Connect an actor and let it act."""
        client = await self._connect(actor.client_id)
        number = self._members[actor.kind]
        self._members[actor.kind] += 1
        client.move(lat=actor.at.lat, lon=actor.at.lon)
        if actor.kind == "vehicle" and number in RESCUERS:
            await client.subscribe("alarm/#", near=5000.0)
        elif actor.kind == "walker" and number in GUIDES:
            await client.subscribe("walker/#", near=250.0)
        self._hold(self._act(actor, client, len(self._clients)), actor.client_id)
        self._hold(self._listen(client), f"{actor.client_id} listens")

    async def enter_watchers(self) -> None:
        """Connect those who only look: at the harbour, and at the island."""
        harbour = await self._connect("demo-harbour")
        await harbour.publish("$/SYS/MQTT/geofence/harbour", HARBOUR, qos=1)
        await harbour.subscribe(["vehicle/#", "walker/#"])
        island = await self._connect("demo-dike-watch")
        await island.subscribe("node/#", covers=ISLAND)
        for client in (harbour, island):
            self._members["watcher"] += 1
            self._hold(self._listen(client), "watcher")

    def _hold(self, work: Any, name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"demo {name}"))

    async def _act(self, actor: Actor, client: Client, number: int) -> None:
        """Act at the pace of the whole, spread evenly over it."""
        due_at = time.monotonic() + self._interval_s * (number * GOLDEN % 1)
        moved_at = 0.0
        while True:
            await asyncio.sleep(due_at - time.monotonic())
            now = time.monotonic()
            # After a pause (a broker that was away) nobody tries to catch up.
            due_at = max(due_at + self._interval_s, now - 1)
            for event in actor.act(_now_ms()):
                await self._publish(client, actor, event)
                self._sent[actor.kind] += 1
            if actor.moves and now - moved_at > MOVE_EVERY_S:
                moved_at = now
                client.move(lat=actor.at.lat, lon=actor.at.lon)

    async def _publish(self, client: Client, actor: Actor, event: Event) -> None:
        if event.at is None:
            await client.publish(event.topic, event.payload)
        elif actor.kind == "walker":
            await client.publish(geo_topic(event.topic, event.at), event.payload)
        else:
            at = {"lat": event.at.lat, "lon": event.at.lon}
            await client.publish(event.topic, event.payload, at=at, time=_now_ms(), to=event.to)

    async def _listen(self, client: Client) -> None:
        async for _ in client.messages:
            self._received += 1

    def check(self) -> None:
        """Raise what ended an actor, if one has ended."""
        for task in self._tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error

    async def leave(self) -> None:
        """Let everybody go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(client.disconnect() for client in self._clients))


def geo_topic(topic: str, at: Spot) -> str:
    """Say the place in the topic, as clients do that know nothing of geo packets.

    >>> geo_topic("walker/1/pulse", Spot(lon=9.05, lat=54.47))
    '$geo/at=POINT(9.05 54.47)/walker/1/pulse'
    """
    return f"$geo/at=POINT({at.lon:.7g} {at.lat:.7g})/{topic}"
