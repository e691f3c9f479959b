"""Every wrong parameter, path, body and method: its status, and a document that names it."""

import http.client
import json
import socket

import pytest

GET = [
    ("size=0", "size"),
    ("size=-1", "size"),
    ("size=1.5", "size"),
    ("size=", "size"),
    ("size=99999999999999999999", "size"),
    ("size=1&size=2", "size"),
    ("order=up", "order"),
    ("after=yesterday", "after"),
    ("after=2026-13-01.1", "after"),
    ("after=2026-01-01.1~zz.1", "after"),
    ("wait=-1", "wait"),
    ("wait=301", "wait"),
    ("wait=nan", "wait"),
    ("wait=soon", "wait"),
    ("from=yesterday", "from"),
    ("from=2026-03-28T25:00:00Z", "from"),
    ("from=2026-03-28/P1D", "from"),
    ("to=", "to"),
    ("from=2026-03-28&to=2026-03-27", "to"),
    ("from=2026-03-28&to=2026-03-28", "to"),
    ("colour=red", "colour"),
    ("geometry=%FF", "query"),
]
GET_PLACE = [
    ("geometry=", "geometry"),
    ("geometry=POINT(8)", "geometry"),
    ("geometry=POINT(8 91)", "geometry"),
    ("geometry=CIRCLE(8 54,1)", "geometry"),
    ("geometry=BBOX(1,2,3)", "geometry"),
    ("geometry=BUFFER(POINT(8 54),-1)", "geometry"),
    ("geometry=SRID=99999;POINT(8 54)", "geometry"),
    ("geometry=POLYGON((0 0,1 1,1 0,0 1,0 0))", "geometry"),
    ('geometry={"type":"Point"}', "geometry"),
    ("geometry={", "geometry"),
    ("geometry=POINT(8 54)&relation=beside", "relation"),
    ("geometry=POINT(8 54)&relation=dwithin", "relation"),
    ("geometry=POINT(8 54)&relation=dwithin.far", "relation"),
    ("geometry=POINT(8 54)&relation=de9im.TT", "relation"),
    ("geometry=POINT(8 54)&relation=covers.5", "relation"),
    ("relation=covers", "relation"),
    ("geometry=POINT(8 54)&tolerance=-5", "tolerance"),
    ("geometry=POINT(8 54)&tolerance=wide", "tolerance"),
    ("geometry=POINT(8 54)&tolerance=inf", "tolerance"),
    ("tolerance=5", "tolerance"),
]
PUT = [("qos=3", "qos"), ("qos=x", "qos"), ("retain=perhaps", "retain"), ("size=1", "size")]
PUT_PLACE = [
    ("time=2026-03-28", "geometry"),
    ("geometry=POINT(8 54)", "time"),
    ("time=&geometry=POINT(8 54)", "time"),
    ("time=noon&geometry=POINT(8 54)", "time"),
    ("time=2026-03-28&geometry=POINT(8)", "geometry"),
    ("time=2026-03-28&geometry=POINT(8 54)&qos=4", "qos"),
    ("time=2026-03-28&geometry=POINT(8 54)&from=0", "from"),
]


def problem(answer, status, parameter=None):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    if parameter is not None:
        assert document["parameter"] == parameter
    return document


@pytest.mark.parametrize(("query", "parameter"), GET)
@pytest.mark.parametrize("door", ["publish", "geopublish"])
def test_a_wrong_parameter_of_get_is_named(bridge, topic, door, query, parameter):
    if query.startswith("geometry") and door == "publish":
        parameter = "query"
    problem(bridge.get(f"/rest/{door}/{topic}?{query}"), 400, parameter)


@pytest.mark.parametrize(("query", "parameter"), GET_PLACE)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_wrong_place_is_named(bridge, topic, method, query, parameter):
    problem(bridge.http.request(method, f"/rest/geopublish/{topic}?{query}"), 400, parameter)


@pytest.mark.parametrize("query", ["geometry=POINT(8 54)", "relation=covers", "time=0", "qos=1"])
def test_parameters_of_another_door_are_refused(bridge, topic, query):
    problem(bridge.get(f"/rest/publish/{topic}?{query}"), 400, query.split("=")[0])


@pytest.mark.parametrize("query", ["size=1", "order=oldest", "after=2026-01-01.1", "wait=1"])
def test_delete_has_no_pages(bridge, topic, query):
    problem(bridge.http.delete(f"/rest/publish/{topic}?{query}"), 400, query.split("=")[0])


@pytest.mark.parametrize(("query", "parameter"), PUT)
def test_a_wrong_parameter_of_put_is_named(bridge, topic, query, parameter):
    problem(bridge.http.put(f"/rest/publish/{topic}?{query}"), 400, parameter)


@pytest.mark.parametrize(("query", "parameter"), PUT_PLACE)
def test_what_a_geopublish_lacks_is_named(bridge, topic, query, parameter):
    problem(bridge.http.put(f"/rest/geopublish/{topic}?{query}"), 400, parameter)


@pytest.mark.parametrize(
    "path", ["a/+/b", "%23", "a/%23", "+", "", "$SYS/x", "$share/g/a", "$geo/at=POINT(1 2)/a"]
)
@pytest.mark.parametrize("door", ["publish", "geopublish"])
def test_what_is_no_topic_cannot_be_put(bridge, door, path):
    query = "?time=0&geometry=POINT(8 54)" if door == "geopublish" else ""
    problem(bridge.http.put(f"/rest/{door}/{path}{query}"), 400, "topic")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "node+/temperature",
        "a/%23/b",
        "a%23",
        "a%00b",
        "%FF",
        "/" * 200,
        "$geo/near=5/a",
        "$share/g/a",
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_is_no_filter_finds_nothing(bridge, method, path):
    problem(bridge.http.request(method, f"/rest/publish/{path}"), 400, "topic")


def test_a_topic_is_no_longer_than_mqtt_allows(bridge):
    connection = http.client.HTTPConnection(*bridge.address, timeout=20)
    connection.request("GET", f"/rest/publish/{'x' * 65_536}")
    answer = connection.getresponse()
    assert answer.status == 400
    assert json.load(answer)["parameter"] == "topic"
    connection.close()


def test_a_live_stream_resumes_only_where_it_can(bridge, topic):
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "somewhere"}
    answer = bridge.get(f"/rest/publish/{topic}", headers=headers)
    problem(answer, 400, "Last-Event-ID")


@pytest.mark.parametrize("accept", ["image/png", "text/html", "application/xml;q=0.9, image/*"])
def test_a_form_that_is_not_to_be_had_is_refused(bridge, topic, accept):
    document = problem(
        bridge.get(f"/rest/publish/{topic}", headers={"Accept": accept}), 406, "Accept"
    )
    assert "text/csv" in document["detail"]


def test_a_long_poll_knows_only_json(bridge, topic):
    answer = bridge.get(f"/rest/publish/{topic}?wait=1", headers={"Accept": "text/csv"})
    problem(answer, 406, "Accept")


def test_a_body_beyond_the_limit_is_refused(bridge, topic):
    problem(bridge.http.put(f"/rest/publish/{topic}", content=b"x" * 1_048_577), 413, "body")
    assert bridge.get(f"/rest/publish/{topic}").json() == []
    bridge.put(f"/rest/publish/{topic}", b"x" * 1_048_576)
    assert len(bridge.get(f"/rest/publish/{topic}").json()) == 1


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/rest/publish/a", "GET, PUT, DELETE, HEAD, OPTIONS"),
        ("PATCH", "/rest/geopublish/a", "GET, PUT, DELETE, HEAD, OPTIONS"),
        ("PUT", "/rest/status", "GET, HEAD, OPTIONS"),
        ("DELETE", "/rest/clients", "GET, HEAD, OPTIONS"),
        ("POST", "/openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_method_that_is_not_for_a_resource_is_refused(bridge, method, path, allow):
    answer = bridge.http.request(method, path)
    problem(answer, 405)
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize("path", ["/rest", "/rest/", "/rest/publish", "/rest/nothing", "/nothing"])
def test_where_nothing_is_nothing_is_found(bridge, path):
    problem(bridge.get(path), 404)


@pytest.mark.parametrize("path", ["clients", "fences", "status", "map", "latest/a", "topics/a"])
def test_every_view_names_a_parameter_it_does_not_know(bridge, path):
    problem(bridge.get(f"/rest/{path}?shape=round"), 400, "shape")


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("latest/a?by=colour", "by"),
        ("latest/a?since=ever", "since"),
        ("latest/a%23", "topic"),
        ("topics/a?size=0", "size"),
        ("topics/", "topic"),
    ],
)
def test_wrong_parameters_of_views_are_named(bridge, path, parameter):
    problem(bridge.get(f"/rest/{path}"), 400, parameter)


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",  # somebody takes it for MQTT
        b"GET /" + b"x" * 2_000_000,
        b"PUT /rest/publish/a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"PUT /rest/publish/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_the_next_request_served(bridge, data):
    with socket.create_connection(bridge.address, timeout=20) as peer:
        peer.sendall(data)
        assert peer.recv(65_536).startswith(b"HTTP/1.1 400")
    assert bridge.get("/health").status_code == 200
