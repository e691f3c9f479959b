"""GET, PUT and DELETE of `/rest/publish` and `/rest/geopublish`, as the paper has them."""

import asyncio
import csv
import io
import json
from urllib.parse import quote

import pytest

import geomqtt

# The south-western dike of Pellworm begins where the paper's own example does.
DIKE = (
    "LINestring(8.589248657226562 54.517893120052946,8.590707778930664 54.512161,"
    "8.598432540893555 54.506180)"
)


async def received(client, count):
    messages = []
    async with asyncio.timeout(20):
        async for message in client.messages:
            messages.append(message)
            if len(messages) == count:
                return messages
    raise AssertionError(f"the client ended after {len(messages)} messages")


def payloads(events):
    return [event.get("properties", event)["payload"] for event in events]


async def test_a_put_is_published(bridge, topic):
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port) as client:
        await client.subscribe(f"{topic}/#", qos=2)
        bridge.put(f"/rest/publish/{topic}/a", "one", qos=1)
        bridge.put(f"/rest/geopublish/{topic}/b", "two", time="0", geometry="POINT(8 54)")
        one, two = await received(client, 2)
    assert (one.topic, one.payload, one.qos, one.retain) == (f"{topic}/a", b"one", 1, False)
    assert (two.topic, two.payload, two.qos) == (f"{topic}/b", b"two", 0)


async def test_a_put_with_retain_is_kept_and_an_empty_one_clears_it(bridge, topic):
    bridge.put(f"/rest/publish/{topic}", "kept", retain="true")
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port) as client:
        await client.subscribe(topic)
        [message] = await received(client, 1)
    assert (message.payload, message.retain) == (b"kept", True)
    bridge.put(f"/rest/publish/{topic}", retain="true")
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port) as client:
        await client.subscribe(topic)
        bridge.put(f"/rest/publish/{topic}", "new")
        [message] = await received(client, 1)
    assert (message.payload, message.retain) == (b"new", False)


async def test_a_geopublish_reaches_who_watches_the_place(bridge, topic):
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port) as client:
        await client.subscribe(f"$geo/covers=BBOX(8,54,9,55)/{topic}")
        bridge.put_at(topic, "POINT(7 54.5)", "outside")
        bridge.put_at(topic, "SRID=25832;POINT(472000 6041000)", "inside")
        [message] = await received(client, 1)
    assert message.payload == b"inside"


def test_what_was_put_is_found_at_once(bridge, topic):
    bridge.put(f"/rest/publish/{topic}", "21.5", qos=2)
    [event] = bridge.get(f"/rest/publish/{topic}").json()
    assert event.pop("id").count(".") == 1
    assert event.pop("time") == event.pop("received")
    assert event == {
        "topic": topic,
        "client": "rest",
        "qos": 2,
        "retain": False,
        "payload": "21.5",
    }


def test_an_event_with_a_place_is_a_feature(bridge, topic):
    bridge.put_at(topic, "POINT(8.58 54.51)", "21.5", time="2026-03-28T11:15:00+01:00")
    answer = bridge.get(f"/rest/geopublish/{topic}")
    assert answer.headers["content-type"] == "application/geo+json"
    document = answer.json()
    assert document["type"] == "FeatureCollection"
    [feature] = document["features"]
    assert feature["geometry"] == {"type": "Point", "coordinates": [8.58, 54.51]}
    assert feature["properties"]["time"] == "2026-03-28T10:15:00Z"
    assert feature["properties"]["payload"] == "21.5"
    assert feature["properties"]["topic"] == topic


async def test_what_clients_publish_is_found(bridge, topic):
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port, client_id=topic) as client:
        await client.publish(f"{topic}/plain", b"1", qos=1)
        await client.publish(f"{topic}/placed", b"2", qos=1, at="POINT(8 54)")
        await client.publish(f"{topic}/timed", b"3", qos=1, time="2026-03-28T11:15:00Z")
    plain = bridge.found(f"/rest/publish/{topic}/%23", 2)
    assert payloads(plain) == ["3", "1"]
    assert plain[0]["time"] == "2026-03-28T11:15:00Z"
    [placed] = bridge.found(f"/rest/geopublish/{topic}/%23", 1)
    assert placed["properties"]["payload"] == "2"
    assert placed["properties"]["client"] == topic


def test_wildcards_find_what_subscriptions_would_get(bridge, topic):
    for name in ("room/237/temperature", "room/238/temperature", "room/237/humidity", "room"):
        bridge.put(f"/rest/publish/{topic}/{name}", name)
    path = f"/rest/publish/{topic}"
    assert len(bridge.get(f"{path}/room/+/temperature").json()) == 2
    assert len(bridge.get(f"{path}/room/%2B/temperature").json()) == 2
    assert len(bridge.get(f"{path}/room/%23").json()) == 4
    assert payloads(bridge.get(f"{path}/room").json()) == ["room"]


@pytest.mark.parametrize(
    "name", ["/a", "a/", "a//b", "/", "grün/°C", "a b", "?x=1&y", "ä%2F", "\n"]
)
def test_a_topic_is_what_the_path_says_to_the_byte(bridge, topic, name):
    whole = f"{topic}{name}" if name != "/" else f"/{topic}/"
    bridge.put(f"/rest/publish/{quote(whole, safe='/')}", "x")
    [event] = bridge.get(f"/rest/publish/{quote(whole, safe='')}").json()
    assert event["topic"] == whole


def test_size_one_is_the_latest(bridge, topic):
    for number in range(3):
        bridge.put(f"/rest/publish/{topic}/{number}", str(number))
    assert payloads(bridge.get(f"/rest/publish/{topic}/+?size=1").json()) == ["2"]
    oldest = bridge.get(f"/rest/publish/{topic}/+?size=1&order=oldest").json()
    assert payloads(oldest) == ["0"]


def test_pages_follow_each_other_without_gap_or_overlap(bridge, topic):
    for number in range(7):
        bridge.put_at(topic, f"POINT({number} 54)", str(number))
    seen = []
    path = f"/rest/geopublish/{topic}?size=3&geometry=BBOX(-1,50,10,60)"
    while path:
        answer = bridge.get(path)
        seen += payloads(answer.json()["features"])
        path = answer.links.get("next", {}).get("url", "")
    assert seen == ["6", "5", "4", "3", "2", "1", "0"]


def test_from_and_to_choose_by_the_events_own_time(bridge, topic):
    for hour in (10, 11, 12):
        bridge.put_at(topic, "POINT(8 54)", str(hour), time=f"2026-03-28T{hour}:00:00Z")
    bridge.put_at(topic, "POINT(8 54)", "long", time="2026-03-28T09:00:00Z/PT90M")

    def found(**times):
        answer = bridge.get(f"/rest/geopublish/{topic}", params=times | {"order": "oldest"})
        return payloads(answer.json()["features"])

    assert found(**{"from": "2026-03-28T11:00:00Z"}) == ["11", "12"]
    assert found(to="2026-03-28T11:00:00Z") == ["10", "long"]
    assert found(**{"from": "2026-03-28T10:15:00Z", "to": "2026-03-28T11:30:00Z"}) == ["11", "long"]
    assert found(**{"from": "1774695600", "to": "1774695601"}) == ["11"]  # 11:00:00 UTC


@pytest.mark.parametrize(
    ("geometry", "expected"),
    [
        ("POLYGON((8 54,9 54,9 55,8 55,8 54))", ["in", "edge"]),
        ("BBOX(8,54,9,55)", ["in", "edge"]),
        ("ENVELOPE(8,9,55,54)", ["in", "edge"]),
        ("SRID=3857;BBOX(890555,7170156,1001876,7361867)", ["in", "edge"]),
        ("BUFFER(POINT(8.5 54.5),1000)", ["in"]),
        ('{"type":"Polygon","coordinates":[[[8,54],[9,54],[9,55],[8,55],[8,54]]]}', ["in", "edge"]),
        ("BBOX(170,-10,-170,10)", ["far"]),
    ],
)
def test_every_form_of_geometry_is_understood(bridge, topic, geometry, expected):
    for place, name in (("8.5 54.5", "in"), ("9 55", "edge"), ("10 54", "out"), ("180 0", "far")):
        bridge.put_at(topic, f"POINT({place})", name)
    answer = bridge.get(
        f"/rest/geopublish/{topic}", params={"geometry": geometry, "order": "oldest"}
    )
    assert payloads(answer.json()["features"]) == expected


def test_the_dike_of_pellworm_finds_its_sensors(bridge, topic):
    bridge.put_at(f"{topic}/node/1/temperature", "POINT(8.589248657226562 54.517893120052946)", "1")
    bridge.put_at(f"{topic}/node/2/temperature", "POINT(8.59005 54.5150)", "2")  # on the way
    bridge.put_at(f"{topic}/node/3/temperature", "POINT(8.65 54.52)", "far")
    bridge.put_at(f"{topic}/node/4/humidity", "POINT(8.5985 54.5061)", "other")
    path = f"/rest/geopublish/{topic}/node/+/temperature"
    answer = bridge.get(path, params={"geometry": DIKE, "order": "oldest"})
    assert payloads(answer.json()["features"]) == ["1", "2"]
    exact = bridge.get(path, params={"geometry": DIKE, "tolerance": "0"})
    assert payloads(exact.json()["features"]) == ["1"]
    wide = bridge.get(path, params={"geometry": DIKE, "tolerance": "6000"})
    assert len(wide.json()["features"]) == 3


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        ("covers", {"in", "edge"}),
        ("contains", {"in"}),
        ("touches", {"edge"}),
        ("disjoint", {"out"}),
        ("intersects", {"in", "edge", "across"}),
        ("overlaps", {"across"}),
        ("dwithin.70000", {"in", "edge", "across", "out"}),
        ("de9im.T*****FF*", {"in"}),
        ("any", {"in", "edge", "across", "out"}),
    ],
)
def test_a_relation_can_be_chosen(bridge, topic, relation, expected):
    for place, name in (
        ("POINT(8.5 54.5)", "in"),
        ("POINT(9 54.5)", "edge"),
        ("POINT(10 54.5)", "out"),
        ("POLYGON((8.9 54.1,9.1 54.1,9.1 54.2,8.9 54.1))", "across"),
    ):
        bridge.put_at(topic, place, name)
    answer = bridge.get(
        f"/rest/geopublish/{topic}", params={"geometry": "BBOX(8,54,9,55)", "relation": relation}
    )
    assert set(payloads(answer.json()["features"])) == expected


def test_delete_returns_what_it_deleted(bridge, topic):
    for number in range(3):
        bridge.put_at(f"{topic}/{number}", f"POINT({number} 54)", str(number))
        bridge.put(f"/rest/publish/{topic}/{number}", "plain")
    answer = bridge.http.delete(f"/rest/geopublish/{topic}/+?geometry=BBOX(-1,53,1.5,55)")
    assert answer.headers["content-type"] == "application/geo+json"
    assert payloads(answer.json()["features"]) == ["0", "1"]
    assert payloads(bridge.get(f"/rest/geopublish/{topic}/+").json()["features"]) == ["2"]
    assert len(bridge.http.delete(f"/rest/publish/{topic}/%23").json()) == 3
    assert bridge.get(f"/rest/publish/{topic}/%23").json() == []
    assert bridge.http.delete(f"/rest/publish/{topic}/%23").json() == []


def test_binary_payloads_come_back_in_base64(bridge, topic):
    bridge.put(f"/rest/publish/{topic}", b"\xff\x00\xfe")
    [event] = bridge.get(f"/rest/publish/{topic}").json()
    assert "payload" not in event
    assert event["payload_base64"] == "/wD+"


def test_csv_and_lines_are_to_be_had(bridge, topic):
    bridge.put_at(topic, "POINT(8 54)", 'a,"b"\n')
    bridge.put_at(topic, "LINESTRING(8 54,9 55)", "2")
    answer = bridge.get(f"/rest/geopublish/{topic}", headers={"Accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["payload"] for row in rows] == ["2", 'a,"b"\n']
    assert [row["geometry"] for row in rows] == ["LINESTRING (8 54, 9 55)", "POINT (8.0 54.0)"]
    answer = bridge.get(f"/rest/geopublish/{topic}", headers={"Accept": "application/x-ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    features = [json.loads(line) for line in answer.text.splitlines()]
    assert payloads(features) == ["2", 'a,"b"\n']
    assert {feature["type"] for feature in features} == {"Feature"}
    nothing = bridge.get(f"/rest/geopublish/{topic}/x", headers={"Accept": "application/x-ndjson"})
    assert nothing.text == ""


def test_what_crosses_the_antimeridian_is_cut_there(bridge, topic):
    bridge.put_at(topic, "BBOX(170,-10,-170,10)")
    [feature] = bridge.get(f"/rest/geopublish/{topic}").json()["features"]
    assert feature["geometry"]["type"] == "MultiPolygon"
    longitudes = [x for rings in feature["geometry"]["coordinates"] for x, _ in rings[0]]
    assert all(-180 <= x <= 180 for x in longitudes)
    assert {min(longitudes), max(longitudes)} == {-180, 180}


async def test_a_long_answer_is_streamed(bridge, topic):
    body = "x" * 1000
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port) as client:
        for number in range(5000):
            await client.publish(topic, f"{number} {body}", qos=number == 4999)
    bridge.found(f"/rest/publish/{topic}?size=1&after=2999-01-01.1", 1)  # the newest is there
    events = bridge.found(f"/rest/publish/{topic}", 5000)
    assert [int(text.split()[0]) for text in payloads(events)] == list(range(4999, -1, -1))
    with bridge.http.stream("GET", f"/rest/publish/{topic}") as answer:
        assert "content-length" not in answer.headers
    assert len(bridge.get(f"/rest/publish/{topic}?size=2000&order=oldest").json()) == 2000


def test_head_has_the_headers_and_options_the_methods(bridge, topic):
    answer = bridge.http.head(f"/rest/geopublish/{topic}")
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["content-type"] == "application/geo+json"
    answer = bridge.http.options(f"/rest/geopublish/{topic}")
    assert answer.status_code == 204
    assert answer.headers["allow"] == "GET, PUT, DELETE, HEAD, OPTIONS"
