"""Who takes part in the demonstration: what each one does next, and what it tells the world.

An actor has a client of its own. It is asked to `act(now_ms)`, in simulated or real time,
and answers with events; it never reads a clock, never publishes and knows no broker.

    Vehicle   drives along the streets               vehicle/<kind>/<id>     JSON
    Ferry     goes to and fro                        ferry/<name>            JSON
                                                     ferry/<name>/departed   where to, no place
    Walker    strolls through Husum                  walker/<id>/pulse       a number
    Sensor    stands on a dike                       node/<id>/temperature   a number
                                                     node/<id>/waterlevel    a number
                                                     alarm/dike/<id>         JSON, to those near
"""

from __future__ import annotations

import json
import math
import random
from typing import Protocol

from geomqtt.demo_world import FERRY_LINE, HUSUM, Spot, StreetMap
from protocol.values import value

# A tide of twelve hours would look like no tide at all: ours turns in minutes.
TIDE_PERIOD_S = 480.0
ALARM_LEVEL_M = 2.2
ALARM_EVERY_S = 30.0


@value
class Event:
    """Something to publish."""

    topic: str
    payload: str
    at: Spot | None  # None: an ordinary message, without a place
    to: str | None = None  # an event geofence, as geometry text


class Actor(Protocol):
    """What the stage asks of everybody on it: `at` is where it is after it has acted."""

    client_id: str
    kind: str
    moves: bool
    at: Spot

    def act(self, now_ms: int) -> list[Event]:
        """Say what happens until now."""


def _json(**values: float | str) -> str:
    return json.dumps(values, separators=(",", ":"))


class _Traveller:
    """Wanders along the streets, never straight back unless the street ends."""

    def __init__(self, streets: StreetMap, start: int, chance: random.Random) -> None:
        self._streets = streets
        self._chance = chance
        self._here = self._there = start
        self._done_m = 0.0
        self._choose(start)

    def _choose(self, came_from: int) -> None:
        self._here = self._there
        ways = list(self._streets.streets[self._here])
        onwards = [node for node in ways if node != came_from] or ways
        self._there = self._chance.choice(onwards)

    @property
    def usual_speed(self) -> float:
        """Give the usual speed on this street, in metres a second."""
        return self._streets.streets[self._here][self._there]

    def go(self, metres: float) -> Spot:
        """Go on, and say where that leads."""
        places = self._streets.places
        self._done_m += metres
        while self._done_m >= (length := places[self._here].metres_to(places[self._there])):
            self._done_m -= length
            self._choose(self._here)
        return places[self._here].towards(places[self._there], self._done_m / length)

    @property
    def heading(self) -> float:
        """Give the compass direction of this street."""
        return self._streets.places[self._here].heading_to(self._streets.places[self._there])


class Vehicle:
    """A car, bus or van that drives about, slower where the streets are slow."""

    kind = "vehicle"
    moves = True

    def __init__(self, name: str, sort: str, streets: StreetMap, seed: int) -> None:
        chance = random.Random(seed)
        self.client_id = f"demo-{sort}-{name}"
        self._topic = f"vehicle/{sort}/{name}"
        self._chance = chance
        start = chance.randrange(len(streets.places))
        self.at = streets.places[start]
        self._traveller = _Traveller(streets, start, chance)
        self._speed = 0.0
        self._fuel = chance.uniform(30, 100)
        self._last_ms: int | None = None

    def act(self, now_ms: int) -> list[Event]:
        """Drive on."""
        passed_s = (now_ms - self._last_ms) / 1000 if self._last_ms is not None else 0.0
        self._last_ms = now_ms
        wish = self._traveller.usual_speed * self._chance.uniform(0.75, 1.1)
        self._speed += (wish - self._speed) * min(passed_s / 4, 1)
        self.at = self._traveller.go(self._speed * passed_s)
        self._fuel = self._fuel - self._speed * passed_s / 20_000 if self._fuel > 5 else 100.0
        payload = _json(
            speed=round(self._speed * 3.6, 1),
            heading=round(self._traveller.heading),
            fuel=round(self._fuel, 1),
        )
        return [Event(self._topic, payload, self.at)]


class Ferry:
    """Goes to and fro between Nordstrand and Pellworm, quicker than the timetable says."""

    kind = "ferry"
    moves = True
    client_id = "demo-ferry-pellworm"
    SPEED = 14.0  # metres a second

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._leg = -1
        self.at = FERRY_LINE.places[0]

    def act(self, now_ms: int) -> list[Event]:
        """Sail on."""
        way_m = (now_ms - self._start_ms) / 1000 * self.SPEED
        leg, done_m = divmod(way_m, FERRY_LINE.length_m)
        outward = leg % 2 == 0
        self.at = FERRY_LINE.at(done_m if outward else FERRY_LINE.length_m - done_m)
        bound = "Pellworm" if outward else "Nordstrand"
        left_s = round((FERRY_LINE.length_m - done_m) / self.SPEED)
        events = [Event("ferry/pellworm", _json(bound=bound, arrives_in_s=left_s), self.at)]
        if leg != self._leg:
            self._leg = int(leg)
            events.append(Event("ferry/pellworm/departed", bound, None))
        return events


class Walker:
    """Strolls through Husum and wears a pulse sensor."""

    kind = "walker"
    moves = True

    def __init__(self, number: int, streets: StreetMap, seed: int) -> None:
        chance = random.Random(seed)
        self.client_id = f"demo-walker-{number}"
        self._topic = f"walker/{number}/pulse"
        self._chance = chance
        nodes = range(HUSUM.columns * HUSUM.rows)  # Husum comes first on the map
        start = chance.choice(nodes)
        self.at = streets.places[start]
        self._traveller = _Traveller(streets, start, chance)
        self._pace = chance.uniform(1.0, 2.6)
        self._pulse = 70 + 20 * self._pace
        self._last_ms: int | None = None

    def act(self, now_ms: int) -> list[Event]:
        """Walk on."""
        passed_s = (now_ms - self._last_ms) / 1000 if self._last_ms is not None else 0.0
        self._last_ms = now_ms
        self._pulse += self._chance.gauss(0, 2) + (70 + 20 * self._pace - self._pulse) * 0.05
        self.at = self._traveller.go(self._pace * passed_s)
        return [Event(self._topic, f"{self._pulse:.0f}", self.at)]


class Sensor:
    """Measures temperature and water at one place of a dike; raises an alarm at high water."""

    kind = "sensor"
    moves = False

    def __init__(self, number: int, at: Spot, seed: int) -> None:
        self.client_id = f"demo-node-{number}"
        self.at = at
        self._number = number
        self._chance = random.Random(seed)
        self._warmth = self._chance.uniform(-0.8, 0.8)
        self._turn = 0
        self._alarm_until_ms = 0

    def water_level_m(self, now_ms: int) -> float:
        """Give the water level: high water comes a little later further east."""
        phase = now_ms / 1000 / TIDE_PERIOD_S - (self.at.lon - 8.5) * 0.25
        return 1.65 * math.sin(phase * math.tau) + 0.6 + self._chance.gauss(0, 0.03)

    def act(self, now_ms: int) -> list[Event]:
        """Measure: temperature and water level in turn."""
        self._turn ^= 1
        if self._turn:
            day = math.sin(now_ms / 1000 / 900 * math.tau)
            degrees = 8.5 + 2.5 * day + self._warmth + self._chance.gauss(0, 0.08)
            return [Event(f"node/{self._number}/temperature", f"{degrees:.2f}", self.at)]
        level = self.water_level_m(now_ms)
        events = [Event(f"node/{self._number}/waterlevel", f"{level:.2f}", self.at)]
        if level > ALARM_LEVEL_M and now_ms >= self._alarm_until_ms:
            self._alarm_until_ms = now_ms + int(ALARM_EVERY_S * 1000)
            near = f"BUFFER(POINT({self.at.lon:.5f} {self.at.lat:.5f}),6000)"
            payload = _json(level=round(level, 2), text="water high")
            events.append(Event(f"alarm/dike/{self._number}", payload, self.at, near))
        return events
