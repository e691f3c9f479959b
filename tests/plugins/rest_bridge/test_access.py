"""Users, tokens and the ACL: over HTTP nobody may more than over MQTT."""

import asyncio

import httpx
import pytest

import geomqtt
from plugins.passwords import make_hash
from tests.plugins.rest_bridge.conftest import watching

ACL = """
[[rule]]
users = ["admin"]
allow = ["all"]
topics = ["#"]

[[rule]]
users = ["ann"]
allow = ["publish", "subscribe"]
topics = ["fleet/#"]

[[rule]]
users = ["ann"]
deny = ["receive"]
topics = ["fleet/secret/#"]

[[rule]]
users = ["ann"]
allow = ["receive"]
topics = ["fleet/#"]

[[rule]]
users = ["coast"]
allow = ["read"]
topics = ["sea/#"]
region = "BBOX(8,54,9,55)"
"""
USERS = {"admin": "root", "ann": "secret", "coast": "water"}
ADMIN = ("admin", "root")
ANN = ("ann", "secret")
COAST = ("coast", "water")


@pytest.fixture
def guarded(start_bridge, tmp_path):
    users, rules = tmp_path / "users", tmp_path / "acl.toml"
    users.write_text("".join(f"{u}:{make_hash(p.encode())}\n" for u, p in USERS.items()))
    rules.write_text(ACL)
    config = f'users_file = "{users}"\nacl_file = "{rules}"\n'
    bridge = start_bridge(config=config + '[http]\ntokens = { "t0k3n" = "ann" }\n')
    bridge.http.auth = ADMIN
    return bridge


def status(bridge, path, auth=None, method="GET", **more):
    with httpx.Client(base_url=bridge.url, timeout=20) as client:
        answer = client.request(method, path, auth=auth, **more)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code


def payloads(answer):
    assert answer.status_code == 200, answer.text
    document = answer.json()
    events = document if isinstance(document, list) else document["features"]
    return [event.get("properties", event)["payload"] for event in events]


def test_only_users_come_in(guarded):
    path = "/rest/publish/fleet/1"
    assert status(guarded, path) == 401
    assert status(guarded, path, ("ann", "wrong")) == 401
    assert status(guarded, path, ("nobody", "secret")) == 401
    assert status(guarded, path, ANN) == 200
    for header in ("Basic !", "Basic YQ==", "Digest x", "Bearer wrong", "Bearer", ""):
        assert status(guarded, path, headers={"Authorization": header}) == 401
    assert status(guarded, path, headers={"Authorization": "Bearer t0k3n"}) == 200
    answer = httpx.get(guarded.url + path)
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert answer.json()["parameter"] == "Authorization"


@pytest.mark.parametrize("path", ["/rest/status", "/rest/map", "/metrics", "/rest/clients"])
def test_nothing_about_the_broker_is_for_strangers(guarded, path):
    assert status(guarded, path) == 401
    assert status(guarded, path, ADMIN) == 200


def test_health_and_description_are_for_everybody(guarded):
    for path in ("/health", "/openapi.json", "/api/"):
        assert httpx.get(guarded.url + path).status_code == 200


def test_a_token_stands_for_its_user(guarded):
    headers = {"Authorization": "Bearer t0k3n"}
    assert status(guarded, "/rest/publish/fleet/1", method="PUT", headers=headers) == 204
    assert status(guarded, "/rest/publish/sea/1", method="PUT", headers=headers) == 403
    [event] = guarded.found("/rest/publish/fleet/1", 1)
    assert event["client"] == "rest:ann"


def test_publishing_is_what_the_acl_allows(guarded):
    assert status(guarded, "/rest/publish/fleet/1", ANN, "PUT") == 204
    assert status(guarded, "/rest/publish/other", ANN, "PUT") == 403
    assert status(guarded, "/rest/publish/fleet/1", COAST, "PUT") == 403


def test_finding_is_what_the_acl_allows(guarded):
    for topic in ("fleet/1", "fleet/secret/2", "other"):
        guarded.put(f"/rest/publish/{topic}", topic)
    guarded.found("/rest/publish/%23", 3)
    assert status(guarded, "/rest/publish/%23", ANN) == 403
    assert status(guarded, "/rest/publish/other", ANN) == 403
    answer = guarded.get("/rest/publish/fleet/%23", auth=ANN)
    assert payloads(answer) == ["fleet/1"]
    assert guarded.get("/rest/topics/fleet/%23", auth=ANN).json() == ["fleet/1"]
    assert payloads(guarded.get("/rest/publish/fleet/%23?size=1", auth=ANN)) == ["fleet/1"]


def test_a_region_bounds_what_is_found(guarded):
    path = "/rest/geopublish/sea/%23"
    guarded.put_at("sea/1", "POINT(8.5 54.5)", "inside")
    guarded.put_at("sea/2", "POINT(10 54.5)", "outside")
    guarded.found(path, 2)
    assert status(guarded, path, COAST) == 403
    assert status(guarded, f"{path}?geometry=BBOX(8,54,12,56)", COAST) == 403
    answer = guarded.get(f"{path}?geometry=BBOX(8,54,9,55)", auth=COAST)
    assert payloads(answer) == ["inside"]
    touching = f"{path}?geometry=BBOX(8,54,9,55)&relation=disjoint"
    assert status(guarded, touching, COAST) == 403


def test_nobody_deletes_what_they_may_not_publish_or_see(guarded):
    for topic in ("fleet/1", "fleet/secret/2"):
        guarded.put(f"/rest/publish/{topic}", topic)
    guarded.put_at("sea/1", "POINT(8.5 54.5)", "sea")
    guarded.found("/rest/publish/fleet/%23", 2)
    answer = guarded.http.delete("/rest/publish/fleet/%23", auth=ANN)
    assert payloads(answer) == ["fleet/1"]
    assert payloads(guarded.get("/rest/publish/fleet/%23")) == ["fleet/secret/2"]
    here = "/rest/geopublish/sea/%23?geometry=BBOX(8,54,9,55)"
    assert payloads(guarded.http.delete(here, auth=COAST)) == []
    assert payloads(guarded.get("/rest/geopublish/sea/%23")) == ["sea"]


async def test_a_stream_gives_what_its_reader_may_receive(guarded):
    assert status(guarded, "/rest/publish/%23", ANN, headers={"Accept": "text/event-stream"}) == 403
    async with watching(guarded, "/rest/publish/fleet/%23", auth=ANN) as events:
        guarded.put("/rest/publish/fleet/secret/1", "secret")
        guarded.put("/rest/publish/fleet/1", "open")
        async with asyncio.timeout(20):
            last, event = await anext(events)
    assert event["payload"] == "open"
    guarded.put("/rest/publish/fleet/secret/1", "secret")
    guarded.put("/rest/publish/fleet/1", "again")
    async with watching(guarded, "/rest/publish/fleet/%23", last=last, auth=ANN) as events:
        async with asyncio.timeout(20):
            _, event = await anext(events)
    assert event["payload"] == "again"


async def test_locations_are_for_those_who_may_see_them(guarded):
    async with geomqtt.Client(
        guarded.broker.host,
        guarded.broker.port,
        client_id="truck",
        username="admin",
        password="root",
    ) as client:
        await client.publish("$/SYS/MQTT/location", b"POINT(8.5 54.5)", qos=1)
        await client.publish("$/SYS/MQTT/geofence/still", b"BBOX(8,54,9,55)", qos=1)
        await client.publish(
            "$/SYS/MQTT/geofence/moving",
            b'{"geometry": "BBOX(8,54,9,55)", "mode": "dynamic"}',
            qos=1,
        )
        [feature] = guarded.get("/rest/clients").json()["features"]
        assert feature["properties"] == {"client": "truck"}
        assert feature["geometry"]["coordinates"] == [8.5, 54.5]
        names = {
            each["properties"]["name"] for each in guarded.get("/rest/fences").json()["features"]
        }
        assert names == {"still", "moving"}
    assert status(guarded, "/rest/clients", ANN) == 403
    assert status(guarded, "/rest/fences", ANN) == 403


def test_other_origins_may_ask_only_if_they_are_named(start_bridge):
    closed = start_bridge()
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in closed.get("/rest/status", headers=origin).headers
    opened = start_bridge(config='[http]\ncors_origins = ["https://example.org"]\n')
    answer = opened.get("/rest/status", headers=origin)
    assert answer.headers["access-control-allow-origin"] == "https://example.org"
    preflight = opened.http.options(
        "/rest/publish/a", headers=origin | {"Access-Control-Request-Method": "PUT"}
    )
    assert preflight.status_code == 200
    stranger = opened.get("/rest/status", headers={"Origin": "https://example.com"})
    assert "access-control-allow-origin" not in stranger.headers
