"""The map as a page: colours, charts, copies, themes, widths, users, tiles, the demonstration."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import paho.mqtt.client as paho
import pytest
from selenium import webdriver
from selenium.webdriver import Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.select import Select

from tests.plugins.rest_bridge.map.conftest import (
    ROOT,
    WAIT_S,
    Page,
    Publisher,
    chromium_options,
    wide,
)

pytestmark = pytest.mark.needs("chromium")


# Colours, charts, copies


def test_colours_follow_a_number_in_the_payload(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/#")
    for number in range(3):
        publisher.at(8.8, 54.5 + number / 100, f"{topic}/{number}/speed", json.dumps({"v": number}))
    page.until(lambda: len(page.listed) == 3)
    Select(page.find("#colour-by")).select_by_value(f"value:{topic}/+/speed|v")
    page.until(lambda: page.texts("#legend-rows .ends span") == ["0", "1", "2"])
    dots = (
        "return [...document.querySelectorAll('#event-list .dot')].map((e) => e.style.background)"
    )
    page.until(
        lambda: (
            page.driver.execute_script(dots)
            == ["rgb(250, 222, 48)", "rgb(24, 162, 160)", "rgb(96, 72, 190)"]
        )
    )


def test_a_click_in_the_legend_hides_a_topic(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/#", depth="2")
    publisher.at(8.8, 54.5, f"{topic}/seen", "")
    page.until(lambda: page.texts("#legend-rows .topic") == [f"{topic}/seen"])
    page.find("#legend-rows button").click()
    page.until(lambda: page.find("#legend-rows button").get_attribute("aria-pressed") == "false")
    page.click_map()
    assert not page.find("#details").is_displayed()


def test_a_numeric_topic_is_charted_from_the_log_and_live(page, publisher, bridge, topic):
    for number in range(5):
        publisher.at(8.8, 54.5, f"{topic}/1", f"{number}.5")
    bridge.found(f"/rest/geopublish/{topic}/1", 5)
    page.open(at="12,54.5,8.8", topic=f"{topic}/#")
    page.until(lambda: len(page.listed) == 5)
    page.find("#event-list button").click()
    page.driver.execute_script(
        "[...document.querySelectorAll('#details .chip')]"
        ".find((e) => e.textContent === 'Chart').click()"
    )
    page.until(lambda: page.texts("#chart-series strong") == ["4.5"])
    assert len(page.all("#chart path.line")) == 1
    publisher.at(8.8, 54.5, f"{topic}/2", "99")
    page.until(lambda: page.texts("#chart-series strong") == ["4.5", "99"])
    assert page.texts("#chart-series .topic") == [f"{topic}/1", f"{topic}/2"]


def test_what_is_on_screen_can_be_copied_as_rest_and_as_a_topic(page, publisher, bridge, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/+")
    page.type("4")
    rest, live, geo_topic, command, link = page.texts("#copy-forms code")
    assert rest in live
    assert command.startswith(f"geomqtt sub -v -t '{topic}/+' --intersects 'BBOX(")
    assert link == page.driver.current_url
    received: list[str] = []
    listener = paho.Client(paho.CallbackAPIVersion.VERSION2)
    listener.on_subscribe = lambda *_: received.append("subscribed")
    listener.on_message = lambda _, __, message: received.append(message.topic)
    listener.connect(bridge.broker.host, bridge.broker.port)
    listener.subscribe(geo_topic)
    listener.loop_start()
    page.until(lambda: received == ["subscribed"])
    publisher.at(0, 0, f"{topic}/outside", "")
    publisher.at(8.8, 54.5, f"{topic}/inside", "")
    page.until(lambda: received == ["subscribed", f"{topic}/inside"])
    listener.disconnect()
    listener.loop_stop()
    [event] = bridge.found(rest, 1)
    assert event["properties"]["topic"] == f"{topic}/inside"


# Layers, themes, widths


def test_clients_and_fences_are_counted_and_can_be_hidden(page, bridge, topic):
    client = Publisher(bridge, client_id=topic)
    client.plain("$/SYS/MQTT/location", "POINT(8.8 54.5)")
    client.plain("$/SYS/MQTT/geofence/home", "BUFFER(POINT(8.8 54.5),500)")
    page.open(at="12,54.5,8.8", topic=topic)
    locations = len(bridge.get("/rest/clients").json()["features"])
    fences = len(bridge.get("/rest/fences").json()["features"])
    assert min(locations, fences) >= 1
    page.until(lambda: page.text("#client-count") == str(locations))
    page.until(lambda: page.text("#fence-count") == str(fences))
    canvases = len(page.all(".leaflet-clients-pane canvas"))
    page.find("#show-clients").click()
    assert len(page.all(".leaflet-clients-pane canvas")) == canvases - 1
    client.close()


def test_light_and_dark_follow_the_system_until_somebody_chooses(page, topic):
    def background() -> str:
        colour: str = page.driver.execute_script(
            "return getComputedStyle(document.querySelector('.bar')).backgroundColor"
        )
        return colour

    def system(scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    system("dark")
    page.open(at="12,54.5,8.8", topic=topic)
    dark = background()
    system("light")
    page.until(lambda: background() != dark)
    page.type("t")
    page.until(lambda: background() == dark)
    page.open(at="12,54.5,8.8", topic=topic)  # the choice is remembered
    assert background() == dark


def test_a_phone_has_room_for_everything(page, publisher, topic):
    wide(page.driver, 375, 700)
    page.open(at="12,54.5,8.8", topic=f"{topic}/#")
    width = "return document.documentElement.scrollWidth"
    assert page.driver.execute_script(width) == 375
    assert not page.find("#panel-events").is_displayed()
    publisher.at(8.8, 54.5, f"{topic}/1", "")
    page.find("#tab-events").click()
    page.until(lambda: page.find("#panel-events .row").is_displayed())
    page.find("#tab-events").click()
    page.until(lambda: not page.find("#panel-events").is_displayed())
    page.find("#legend-toggle").click()
    assert page.find("#colour-by").is_displayed()
    page.find("#mode-history").click()
    page.until(lambda: page.find("#time").is_displayed())
    assert page.driver.execute_script(width) == 375


def test_tabs_can_be_walked_with_arrow_keys(page, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    page.type(Keys.ARROW_RIGHT, at="#tab-events")
    assert page.find("#panel-chart").is_displayed()
    page.type(Keys.END, at="#tab-chart")
    assert page.find("#panel-copy").is_displayed()
    page.type(Keys.ARROW_RIGHT, at="#tab-copy")
    assert page.find("#panel-events").is_displayed()


def test_everything_that_can_be_pressed_has_a_name(page, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    nameless = page.driver.execute_script(
        "return [...document.querySelectorAll('button, a, select, input')]"
        ".filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length || e.title))"
        ".map((e) => e.outerHTML)"
    )
    assert nameless == []


def test_without_tiles_there_is_a_world_and_nobody_else_is_asked_for_anything(page, topic):
    page.open(at="5,54.5,8.8", topic=topic)
    page.until(lambda: page.all(".leaflet-tile-pane canvas"))
    hosts = page.driver.execute_script(
        "return [...new Set(performance.getEntriesByType('resource')"
        ".map((e) => new URL(e.name).host))]"
    )
    assert hosts == [page.bridge.url.removeprefix("http://")]


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


class TileServer(ThreadingHTTPServer):
    """Answers everything with a transparent pixel, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []

        class Answer(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805
                self.asked.append(handler.path)
                handler.send_response(200)
                handler.send_header("Content-Type", "image/png")
                handler.end_headers()
                handler.wfile.write(PIXEL)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Answer)


def test_tiles_are_used_where_they_are_configured(page, start_bridge, topic):
    with TileServer() as tiles:
        threading.Thread(target=tiles.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{tiles.server_port}/{{z}}/{{x}}/{{y}}.png"
        page.bridge = start_bridge(
            config=f'[map_settings]\ntile_url = "{url}"\ntile_attribution = "<b>ours</b>"\n'
        )
        page.open(at="2,0,0", topic=topic)
        page.until(lambda: "/2/1/1.png" in tiles.asked)
        assert page.text("#credit") == "<b>ours</b>"
        assert page.all(".leaflet-tile-pane canvas") == []
        page.driver.get("about:blank")
        tiles.shutdown()


def test_with_users_the_browser_asks_for_a_name_and_the_map_is_theirs(
    start_bridge, tmp_path, tmp_path_factory, topic
):
    users = tmp_path / "users"
    command = [sys.executable, "-m", "geomqtt", "passwd", "-c", "-b", str(users), "ada", "secret"]
    subprocess.run(command, check=True, cwd=ROOT)
    bridge = start_bridge(config=f'users_file = "{users}"\n')
    options = chromium_options(tmp_path_factory.mktemp("signed-in"))
    options.enable_bidi = True
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        driver.network.add_auth_handler("ada", "secret")
        page = Page(driver, bridge)
        page.open(at="12,54.5,8.8", topic=topic)
        answer = bridge.http.put(
            f"/rest/geopublish/{topic}",
            params={"time": "2026-03-28T12:00Z", "geometry": "POINT(8.8 54.5)"},
            auth=("ada", "secret"),
        )
        assert answer.status_code == 204
        page.until(lambda: page.listed == [topic])
    finally:
        driver.quit()


# The demonstration


def test_the_map_is_alive_within_ten_seconds_of_the_demo(page, start_bridge):
    bridge = start_bridge()
    page.bridge = bridge
    demo = subprocess.Popen(
        [sys.executable, "-m", "geomqtt", "demo", "-h", "127.0.0.1", "-p", str(bridge.broker.port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        page.open()
        page.until(
            lambda: {"vehicle", "walker", "node"} <= set(page.texts("#legend-rows .topic")), 10
        )
        # The page has gone to where things happen by itself.
        page.until(lambda: "at=" in page.driver.current_url, 10)
        page.until(lambda: page.text("#fence-count") not in ("", "0"), 10)
    finally:
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=WAIT_S)
    assert errors == b""
    assert demo.returncode == 0


# Modules on their own


def test_a_filter_is_judged_as_the_broker_judges_it(page):
    page.open(at="12,54.5,8.8", topic="none")
    filters = [
        "#",
        "a/#",
        "+/b",
        "/",
        "a//+",
        "",
        "a/#/b",
        "a#",
        "+a",
        "$geo/near=5/a",
        "$share/g/a",
    ]
    faults = page.module("topics.js", f"return {json.dumps(filters)}.map(m.filterFault)")
    assert [fault == "" for fault in faults] == [True] * 5 + [False] * 6


@pytest.mark.parametrize(
    ("payload", "numbers"),
    [
        ("21.5", {"": 21.5}),
        (" -1e3 ", {"": -1000}),
        ('{"speed": 3, "name": "x", "deep": {"v": 1}}', {"speed": 3}),
        ("{}", None),
        ("{broken", None),
        ("0x10", None),
        ("", None),
        ("[1, 2]", None),
    ],
)
def test_numbers_are_found_in_payloads(page, payload, numbers):
    page.open(at="12,54.5,8.8", topic="none")
    code = f"return m.numbersOf({{ payload: {json.dumps(payload)}, binary: false }})"
    assert page.module("numbers.js", code) == numbers


def test_shapes_survive_being_text(page):
    page.open(at="12,54.5,8.8", topic="none")
    code = """
        const circle = { kind: "circle", centre: { lat: 54.5, lon: 8.8 }, metres: 500 };
        const points = [{ lat: 1, lon: 2 }, { lat: 3, lon: 4 }, { lat: 5, lon: 6 }];
        const shapes = [circle, { kind: "polygon", points }];
        const texts = shapes.map(m.shapeToText);
        const same = JSON.stringify(texts.map(m.shapeFromText)) === JSON.stringify(shapes);
        return [...texts, same, m.shapeFromText("POLYGON((1 2,3))"), m.shapeFromText("<b>")];
    """
    assert page.module("shapes.js", code) == [
        "BUFFER(POINT(8.8 54.5),500)",
        "POLYGON((2 1,4 3,6 5,2 1))",
        True,
        None,
        None,
    ]
