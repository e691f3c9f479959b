"""The plans of geo rows: events at points of a city, and fences that some of them fall into.

Every event carries a time and a point; fences are polygons of 32 corners, spread over the
subscribers' connections so that about five of them hold each event whatever their number.
Who must get what is worked out here with shapely, so that the generator counts every delivery
too many or too few.
"""

import math

import numpy as np
import shapely
from numpy.typing import NDArray

from tests.bench.rows import Row
from tests.bench.traffic import (
    PAYLOAD_SIZE,
    Exchange,
    Plan,
    Traffic,
    packet,
    publish_packet,
    string,
    subscribe,
    varint,
)

WEST, SOUTH, EAST, NORTH = 13.2, 52.4, 13.6, 52.64
CORNERS = 32
HITS = 5.0  # of an event, on average
EVENTS = 10_000  # places that the publishers visit in turn
IN_A_PACKET = 50
TOPIC = "bench/geo"
TIME_MS = 1_774_696_500_000
LATE = 1000  # fences that are added, and timed, when all the others are there

Points = NDArray[np.float64]


def city_points(count: int, seed: int) -> Points:
    """Draw points, rounded so that text and binary forms say the same."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(WEST, EAST, count)
    y = draw.uniform(SOUTH, NORTH, count)
    points: Points = np.column_stack((x, y)).round(6)
    return points


def polygons(centres: Points, radius: float, seed: int) -> list[shapely.Polygon]:
    """Draw a polygon round each centre; the radius is in degrees of latitude."""
    draw = np.random.default_rng(seed)
    angles = np.linspace(0, 2 * math.pi, CORNERS, endpoint=False)
    radii = radius * draw.uniform(0.8, 1.2, (len(centres), CORNERS))
    stretch = 1 / math.cos(math.radians((SOUTH + NORTH) / 2))
    x = centres[:, :1] + radii * np.cos(angles) * stretch
    y = centres[:, 1:] + radii * np.sin(angles)
    return [shapely.Polygon(ring) for ring in np.stack((x, y), axis=2).round(7)]


def fences_of(count: int) -> list[shapely.Polygon]:
    """Draw so many fences that an event falls into five, however many there are."""
    squeeze = math.cos(math.radians((SOUTH + NORTH) / 2))
    area = (EAST - WEST) * squeeze * (NORTH - SOUTH)
    radius = math.sqrt(HITS * area / math.pi / count)
    return polygons(city_points(count, seed=1), radius, seed=2)


def hits_of(points: Points, fences: list[shapely.Polygon], subscribers: int) -> NDArray[np.bool_]:
    """Tell which subscriber gets which event; fence n belongs to subscriber n modulo so many."""
    hits = np.zeros((len(points), subscribers), np.bool_)
    event, fence = shapely.STRtree(fences).query(shapely.points(points), predicate="intersects")
    hits[event, fence % subscribers] = True
    return hits


def pattern(hits: NDArray[np.bool_]) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Turn hits into `steps` and `first_number` of a Traffic."""
    events, subscribers = hits.shape
    steps = np.ones((events, subscribers), np.uint32)
    first = np.full(subscribers, 1 << 62, np.uint64)
    for subscriber in range(subscribers):
        due = np.flatnonzero(hits[:, subscriber])
        if len(due):
            first[subscriber] = due[0]
            steps[due, subscriber] = np.diff(np.append(due, due[0] + events))
    return steps, first


# GeoMQTT's packets


def geopublish(topic: str, point: Points) -> bytes:
    """GEOPUBLISH with an instant and a point."""
    place = point.astype(">f8").tobytes()
    time = TIME_MS.to_bytes(8, "big")
    return packet(0xF6, b"\x30" + string(topic) + b"\x09" + time + place + bytes(PAYLOAD_SIZE))


def geosubscribe(topic: str, fences: list[shapely.Polygon]) -> Exchange:
    """GEOSUBSCRIBE to what fences cover, as WKB, and the GEOSUBACK that grants all of it."""
    entries = b""
    for fence in fences:
        data = shapely.to_wkb(fence)
        entries += string(topic) + b"\0\0\0\0\1\4\0\0\0\0" + varint(len(data)) + data + b"\0"
    granted = packet(0xF6, b"\x90\0\1" + bytes(len(fences)))
    return packet(0xF6, b"\x82\0\1" + entries), granted


def anywhere(topic: str) -> Exchange:
    """GEOSUBSCRIBE without a fence."""
    entry = string(topic) + bytes(5) + bytes(7)
    return packet(0xF6, b"\x82\0\1" + entry), packet(0xF6, b"\x90\0\1\0")


def in_packets(fences: list[shapely.Polygon], topic: str, *, in_topic: bool) -> list[Exchange]:
    """Subscribe to fences, so many in a packet."""
    made = []
    for start in range(0, len(fences), IN_A_PACKET):
        some = fences[start : start + IN_A_PACKET]
        if in_topic:
            names = [
                f"$geo/covers={shapely.to_wkt(each, rounding_precision=7, trim=True)}/{topic}"
                for each in some
            ]
            made.append(subscribe(names, 0))
        else:
            made.append(geosubscribe(topic, some))
    return made


def traffic_of(
    row: Row, templates: list[bytes], hits: NDArray[np.bool_], delivery: bytes
) -> Traffic:
    """All publishers walk through the same events; a delivery looks like this one."""
    one = np.array([np.frombuffer(each, np.uint8) for each in templates])
    steps, first = pattern(hits)
    return Traffic(
        frames=np.repeat(one[None], row.publishers, axis=0),
        out_stamp=one.shape[1] - PAYLOAD_SIZE,
        out_id=-1,
        in_prefix=delivery[:3],
        in_frame=len(delivery),
        in_stamp=len(delivery) - PAYLOAD_SIZE,
        in_id=-1,
        window=max(1, row.window // row.publishers),
        first_subscriber=np.zeros(row.publishers, np.int32),
        subscriber_count=np.full(row.publishers, row.subscribers, np.int32),
        subscribers=row.subscribers,
        steps=steps,
        first_number=first,
    )


def plan(row: Row) -> Plan:
    """GEOPUBLISH against fences of GEOSUBSCRIBE; with none, five subscribers have no fence."""
    points = city_points(EVENTS, seed=3)
    templates = [geopublish(TOPIC, point) for point in points]
    if not row.fences:
        hits = np.zeros((EVENTS, row.subscribers), np.bool_)
        hits[:, : int(HITS)] = True
        lists = [[anywhere(TOPIC)] if s < HITS else [] for s in range(row.subscribers)]
        return Plan(traffic_of(row, templates, hits, templates[0]), lists)
    fences = fences_of(row.fences)
    hits = hits_of(points, fences, row.subscribers)
    lists = [
        in_packets(fences[s :: row.subscribers], TOPIC, in_topic=False)
        for s in range(row.subscribers)
    ]
    # Somebody else's, on a topic that holds all the others and is not published on.
    late = in_packets(fences[:LATE], TOPIC, in_topic=False)
    return Plan(
        traffic_of(row, templates, hits, templates[0]),
        lists,
        late=late,
        late_count=len(fences[:LATE]),
    )


def topic_plan(row: Row) -> Plan:
    """The same events and fences through `$geo/` topics: PUBLISH and SUBSCRIBE alone."""
    points = city_points(EVENTS, seed=3)
    templates = [publish_packet(f"$geo/at=POINT({x:.6f} {y:.6f})/{TOPIC}", 0) for x, y in points]
    fences = fences_of(row.fences)
    hits = hits_of(points, fences, row.subscribers)
    lists = [
        in_packets(fences[s :: row.subscribers], TOPIC, in_topic=True)
        for s in range(row.subscribers)
    ]
    return Plan(traffic_of(row, templates, hits, publish_packet(TOPIC, 0)), lists)


def one_hit_plan(row: Row) -> Plan:
    """As many fences as there are, each event in one of them: on one topic, or one on each."""
    across = math.isqrt(row.fences)
    x = np.linspace(WEST, EAST, across, endpoint=False)
    y = np.linspace(SOUTH, NORTH, across, endpoint=False)
    centres = np.round(np.array([(each_x, each_y) for each_x in x for each_y in y]), 6)
    fences = polygons(centres, (NORTH - SOUTH) / across / 3, seed=2)
    order = np.random.default_rng(4).permutation(len(fences))
    topics = [f"bench/{n:05}" if row.topics > 1 else "bench/00000" for n in range(len(fences))]
    templates = [geopublish(topics[n], centres[n]) for n in order]
    hits = np.zeros((len(fences), row.subscribers), np.bool_)
    hits[np.arange(len(fences)), order % row.subscribers] = True
    lists: list[list[Exchange]] = []
    for s in range(row.subscribers):
        if row.topics > 1:
            mine = range(s, len(fences), row.subscribers)
            lists.append([geosubscribe(topics[n], [fences[n]]) for n in mine])
        else:
            lists.append(in_packets(fences[s :: row.subscribers], topics[0], in_topic=False))
    return Plan(traffic_of(row, templates, hits, templates[0]), lists)
