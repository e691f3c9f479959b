"""Clients, fences, last positions, status and metrics; the door itself; REST without a log."""

import contextlib
import socket
import subprocess
import sys

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

import geomqtt
from tests.plugins.rest_bridge.conftest import free_port


async def test_clients_and_fences_are_shown_where_they_are(bridge, topic):
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port, client_id=topic) as client:
        await client.publish("$/SYS/MQTT/location", b"POINT(8.5 54.5)", qos=1)
        await client.publish("$/SYS/MQTT/geofence/home", b"BBOX(8,54,9,55)", qos=1)
        await client.subscribe("$geo/covers=BBOX(1,2,3,4)/node/+")
        await client.subscribe("$geo/near=1000/node/+")
        clients = bridge.get("/rest/clients").json()
        fences = bridge.get("/rest/fences").json()
    [here] = [each for each in clients["features"] if each["properties"]["client"] == topic]
    assert here["geometry"] == {"type": "Point", "coordinates": [8.5, 54.5]}
    mine = [each for each in fences["features"] if each["properties"]["client"] == topic]
    kinds = {(each["properties"]["kind"], each["properties"]["filter"]) for each in mine}
    assert kinds == {("static", "#"), ("covers", "node/+"), ("near", "node/+")}
    assert {each["geometry"]["type"] for each in mine} == {"Polygon"}


def test_a_subscription_of_the_bridge_is_no_client(bridge, topic):
    headers = {"Accept": "text/event-stream"}
    path = f"/rest/geopublish/{topic}?geometry=BBOX(1,2,3,4)"
    with bridge.http.stream("GET", path, headers=headers) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        fences = httpx.get(f"{bridge.url}/rest/fences").json()["features"]
        assert all(each["properties"]["client"] for each in fences)
        status = httpx.get(f"{bridge.url}/rest/status").json()
        assert (status["live_streams"], status["status"]["sessions"]) == (1, 0)


async def test_the_latest_event_of_every_client_and_topic(bridge, topic):
    for name in ("a", "b"):
        async with geomqtt.Client(
            bridge.broker.host, bridge.broker.port, client_id=f"{topic}-{name}"
        ) as client:
            for number in range(3):
                await client.publish(f"{topic}/{number % 2}", name, qos=1, at=f"POINT({number} 54)")
    bridge.found(f"/rest/geopublish/{topic}/+", 6)
    path = f"/rest/latest/{topic}/%23"
    clients = bridge.get(path).json()["features"]
    assert [
        (each["properties"]["client"], each["geometry"]["coordinates"]) for each in clients
    ] == [
        (f"{topic}-b", [2, 54]),
        (f"{topic}-a", [2, 54]),
    ]
    topics = bridge.get(f"{path}?by=topic").json()["features"]
    assert [each["properties"]["topic"] for each in topics] == [f"{topic}/0", f"{topic}/1"]
    assert bridge.get(f"{path}?since=2999-01-01").json()["features"] == []
    assert bridge.get(f"/rest/topics/{topic}/%23").json() == [f"{topic}/0", f"{topic}/1"]
    assert bridge.get(f"/rest/topics/{topic}/%23?size=1").json() == [f"{topic}/0"]


def test_status_and_metrics_count_the_same(bridge, topic):
    bridge.put(f"/rest/publish/{topic}", "x")
    bridge.found(f"/rest/publish/{topic}", 1)
    status = bridge.get("/rest/status").json()
    assert status["event_log"] is True
    assert status["status"]["connections"] == 0
    answer = bridge.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    metrics = {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    logged = metrics["geomqtt_event_log_events_total"]
    assert logged >= 1
    assert logged == status["counts"]["event_log_events_total"]
    assert metrics["geomqtt_retained_messages"] > 0
    assert metrics["geomqtt_uptime_s"] > 0


def test_a_reader_of_the_log_that_is_killed_is_replaced(bridge, topic):
    bridge.put(f"/rest/publish/{topic}", "x")
    bridge.found(f"/rest/publish/{topic}", 1)
    children = psutil.Process(bridge.broker.process.pid).children()
    readers = [each for each in children if "log_worker" in " ".join(each.cmdline())]
    assert readers
    for each in readers:
        each.kill()
        each.wait(20)
    answers = [bridge.get(f"/rest/publish/{topic}").status_code for _ in range(5)]
    assert set(answers) <= {200, 503}
    assert answers[-1] == 200
    bridge.found(f"/rest/publish/{topic}", 1)


def test_the_broker_is_healthy(bridge):
    assert bridge.get("/health").json() == {"status": "ok"}


def test_pages_load_nothing_from_elsewhere(bridge):
    page = bridge.get("/api/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "http" not in policy
    assert bridge.get("/leaflet/leaflet.js").status_code == 200
    assert bridge.get("/api/../plugin.py").status_code == 404
    assert bridge.get("/api/..%2fplugin.py").status_code == 404


def test_a_tile_url_is_told_to_the_map_and_allowed(start_bridge):
    tiles = "https://{s}.tile.example.org/{z}/{x}/{y}.png"
    bridge = start_bridge(config=f'[map_settings]\ntile_url = "{tiles}"\n')
    told = bridge.get("/rest/map").json()
    assert told["tile_url"] == tiles
    assert "https://*.tile.example.org" in bridge.get("/api/").headers["content-security-policy"]


def test_without_a_log_there_is_no_history_and_everything_else(start_bridge):
    bridge = start_bridge(log=False)
    bridge.put("/rest/publish/a", "1", retain="1")
    bridge.put_at("a", "POINT(8 54)")
    for path in ("publish/a", "geopublish/a", "latest/%23", "topics/%23"):
        answer = bridge.get(f"/rest/{path}")
        assert answer.status_code == 503
        assert "event log is off" in answer.json()["detail"]
    assert bridge.http.delete("/rest/publish/a").status_code == 503
    assert bridge.get("/rest/status").json()["event_log"] is False
    assert bridge.get("/rest/clients").status_code == 200


@contextlib.contextmanager
def serving(tmp_path, *flags):
    command = [sys.executable, "-m", "geomqtt", "serve", "--port", "0", "--data", str(tmp_path)]
    with subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_taken_port_that_was_asked_for_stops_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(tmp_path, "--http-port", str(port)) as process:
            errors = process.stderr.read()
    assert process.returncode == 2
    assert errors.splitlines()[-1] == f"geomqtt: http 127.0.0.1:{port}: address already in use"


def test_a_taken_port_that_need_not_be_had_is_a_warning(tmp_path):
    config = tmp_path / "config.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(f"[http]\nport = {port}\n")
        with serving(tmp_path / "data", "--config", str(config)) as process:
            ready = process.stdout.readline()
            process.terminate()
            errors = process.stderr.read()
    assert ready.startswith("geomqtt ready: mqtt ")
    assert "http" not in ready
    assert f"http 127.0.0.1:{port}: address already in use: going on without" in errors
    assert process.returncode == 0


def test_the_door_may_be_ipv6(start_broker):
    port = free_port()
    broker = start_broker("--http-port", str(port), config='[http]\nhost = "::1"\n', listen=False)
    assert broker.addresses["http"] == [f"http://[::1]:{port}/"]
    assert httpx.get(f"http://[::1]:{port}/health").status_code == 200


@pytest.mark.parametrize(
    "setting", ["workers = 0", "max_streams = -1", "stall_s = 0", "port = 70000"]
)
def test_settings_that_cannot_work_stop_the_start(tmp_path, setting):
    config = tmp_path / "config.toml"
    config.write_text(f"[http]\n{setting}\n")
    with serving(tmp_path / "data", "--config", str(config)) as process:
        errors = process.stderr.read()
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("geomqtt: ")
    assert setting.split(" ")[0] in errors.splitlines()[-1]
