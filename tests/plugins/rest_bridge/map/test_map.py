"""The map in a real browser: what is published over MQTT is seen, filtered and found again."""

from __future__ import annotations

import re
import time

import paho.mqtt.client as paho
import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.select import Select

from tests.plugins.rest_bridge.map.conftest import (
    WAIT_S,
    Publisher,
)

pytestmark = pytest.mark.needs("chromium")


# Live


def test_an_event_published_over_mqtt_appears_on_the_map(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/#")
    assert page.listed == []
    publisher.at(8.8, 54.5, f"{topic}/7/temperature", "21.5")
    page.until(lambda: page.listed == [f"{topic}/7/temperature"])
    page.click_map()  # it is drawn in the very middle
    page.until(lambda: page.find("#details").is_displayed())
    assert page.text("#details h2") == f"{topic}/7/temperature"
    assert page.text("#details .payload") == "21.5"
    assert "54.50000, 8.80000" in page.text("#details")
    page.type(Keys.ESCAPE)
    page.until(lambda: not page.find("#details").is_displayed())


def test_panning_changes_what_arrives(page, publisher, topic):
    # 0.0014 degrees a pixel: the second place lies beyond the right edge, then the first
    # one beyond the left.
    page.open(at="10,54.5,8.8", topic=f"{topic}/#")
    publisher.at(9.8, 54.5, f"{topic}/east", "1")
    publisher.at(8.8, 54.5, f"{topic}/west", "1")
    page.until(lambda: page.listed == [f"{topic}/west"])

    def west_end() -> float:
        found = re.search(r"BBOX\(([-0-9.]+),", page.following)
        return float(found[1]) if found else 0.0

    def go_on() -> bool:
        page.type(Keys.SHIFT, Keys.ARROW_RIGHT, at="#map")
        return west_end() > 8.8

    page.until(go_on)
    page.until(lambda: page.status == "live" and west_end() > 8.8)
    page.until(lambda: f"{topic}/east" in page.listed)  # from the log: what it missed
    publisher.at(8.8, 54.5, f"{topic}/west", "2")
    publisher.at(9.8, 54.5, f"{topic}/east", "2")
    page.until(lambda: page.listed.count(f"{topic}/east") == 2)
    assert page.listed.count(f"{topic}/west") <= 1


def test_zooming_out_brings_the_whole_world(page, publisher, topic):
    page.open(at="2,0,0", topic=f"{topic}/#")
    assert page.following.endswith("everywhere")
    publisher.at(-179.5, -40, f"{topic}/far", "")
    publisher.at(179.5, 60, f"{topic}/farther", "")
    page.until(lambda: set(page.listed) == {f"{topic}/far", f"{topic}/farther"})


def test_a_view_over_the_antimeridian_is_one_view(page, publisher, topic):
    page.open(at="6,0,180", topic=f"{topic}/#")
    publisher.at(0, 0, f"{topic}/elsewhere", "")
    publisher.at(179, 1, f"{topic}/west", "")
    publisher.at(-179, 1, f"{topic}/east", "")
    page.until(lambda: set(page.listed) == {f"{topic}/west", f"{topic}/east"})


def test_another_topic_filter_asks_anew(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/a")
    field = page.find("#filter")
    field.clear()
    field.send_keys(f"{topic}/b", Keys.ENTER)
    page.until(lambda: page.following.startswith(f"{topic}/b in"))
    publisher.at(8.8, 54.5, f"{topic}/a", "")
    publisher.at(8.8, 54.5, f"{topic}/b", "")
    page.until(lambda: page.listed == [f"{topic}/b"])
    assert f"topic={topic}%2Fb" in page.driver.current_url


def test_a_filter_that_is_none_is_refused_where_it_was_typed(page, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    field = page.find("#filter")
    field.clear()
    field.send_keys("a/#/b", Keys.ENTER)
    assert field.get_property("validationMessage") == "# may only stand at the end."
    assert page.following.startswith(f"{topic} in")


def test_a_line_that_is_only_partly_in_view_is_seen_and_can_be_clicked(page, bridge, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    bridge.put_at(topic, "LINESTRING(8.8 54.4,8.8 54.9)", "closed", "2026-03-28T12:00Z/PT2H")
    page.until(lambda: page.listed == [topic])
    page.click_map()
    page.until(lambda: page.find("#details").is_displayed())
    assert "LineString" in page.text("#details")


def test_thousands_of_events_stay_within_bounds(page, bridge, topic):
    page.open(at="8,54.5,8.8", topic=f"{topic}/#")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_queued_messages_set(0)
    client.connect(bridge.broker.host, bridge.broker.port)
    client.loop_start()
    sent = [
        client.publish(f"$geo/at=POINT({8 + n % 500 / 400} {54 + n % 300 / 300})/{topic}/{n % 900}")
        for n in range(9000)
    ]
    sent[-1].wait_for_publish(WAIT_S)
    client.disconnect()
    client.loop_stop()
    page.until(lambda: page.find("#map").get_attribute("data-events") == "6000")
    assert len(page.listed) == 60
    page.type("?")  # and it still listens to its user
    page.until(lambda: page.find("#help").is_displayed())
    page.find("#help button").click()


def test_the_page_waits_for_a_broker_that_is_away(page, start_bridge, topic):
    bridge = start_bridge()
    page.bridge = bridge
    page.open(at="12,54.5,8.8", topic=topic)
    port, http_port = bridge.broker.port, bridge.address[1]
    bridge.broker.stop()
    page.until(lambda: page.status == "retrying")
    again = start_bridge("--http-port", str(http_port), port=port)
    page.until(lambda: page.status == "live")
    publisher = Publisher(again)
    publisher.at(8.8, 54.5, topic, "back")
    page.until(lambda: page.listed == [topic])
    publisher.close()
    page.driver.get("about:blank")
    # That nobody answered meanwhile is the browser's to complain about, and nothing else.
    assert all("ERR_" in line for line in page.console())


# Shapes


def test_a_drawn_circle_lets_only_what_is_inside_through(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/#")
    page.find("#draw-circle").click()
    page.click_map()
    page.click_map(right=100)  # 100 pixels are 2.2 km here
    page.until(lambda: page.find("#watch-count").get_attribute("data-status") == "live")
    assert page.text("#watch-name").startswith("Circle of 2.")
    publisher.at(8.86, 54.5, f"{topic}/outside", "")
    publisher.at(8.81, 54.5, f"{topic}/inside", "")
    page.until(lambda: page.texts("#watch-total") == ["1"])
    assert page.texts("#watch-list .topic") == [f"{topic}/inside"]
    page.until(lambda: len(page.texts("#event-list .topic")) == 2)
    page.find("#watch-clear").click()
    page.until(lambda: page.find("#watch-empty").is_displayed())


def test_a_drawn_polygon_lets_only_what_is_inside_through(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/#")
    page.type("p")
    for right, down in ((-100, -100), (100, -100), (100, 100), (-100, 100)):
        page.click_map(right, down)
    page.click_map(-100, -100)  # the first corner again
    page.until(lambda: page.find("#watch-count").get_attribute("data-status") == "live")
    assert page.text("#watch-name") == "Polygon of 4 corners"
    publisher.at(8.85, 54.5, f"{topic}/outside", "")
    publisher.at(8.81, 54.51, f"{topic}/inside", "")
    page.until(lambda: page.texts("#watch-list .topic") == [f"{topic}/inside"])


def test_a_polygon_can_be_drawn_with_the_keyboard_alone(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    page.type("p", at="#map")
    for key in (Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ARROW_RIGHT):
        before = page.driver.current_url
        page.type(" ", at="#map")
        page.type(key, at="#map")
        page.until(lambda before=before: page.driver.current_url != before)
    page.type(Keys.ENTER, at="#map")
    page.until(lambda: page.text("#watch-name") == "Polygon of 3 corners")


def test_escape_gives_a_drawing_up(page, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    page.type("c")
    page.click_map()
    assert page.find("#draw-bar").is_displayed()
    page.type(Keys.ESCAPE)
    page.until(lambda: not page.find("#draw-bar").is_displayed())
    assert "shape=" not in page.driver.current_url


def test_what_cannot_be_a_fence_is_told_with_the_reason(page, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    page.type("p")
    for right, down in ((-100, -100), (100, 100), (100, -100), (-100, 100)):  # a bow tie
        page.click_map(right, down)
    page.type(Keys.ENTER)
    page.until(lambda: page.find("#watch-count").get_attribute("data-status") == "refused")
    assert page.text("#watch-count").startswith("geometry:")
    assert any("400" in line for line in page.console())


def test_a_link_with_a_shape_watches_at_once(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/#", shape="BUFFER(POINT(8.8 54.5),1000)")
    page.type("3")
    page.until(lambda: page.find("#watch-count").get_attribute("data-status") == "live")
    publisher.at(8.85, 54.5, f"{topic}/outside", "")
    publisher.at(8.8, 54.5, f"{topic}/inside", "")
    page.until(lambda: page.texts("#watch-list .topic") == [f"{topic}/inside"])


# History


def minutes_ago(minutes: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - minutes * 60))


def test_history_answers_and_the_slider_moves_through_it(page, publisher, bridge, topic):
    for minutes in (12, 8, 4):
        publisher.at(8.8, 54.5, f"{topic}/{minutes}", str(minutes), time=minutes_ago(minutes))
    bridge.found(f"/rest/geopublish/{topic}/+", 3)
    page.open(at="12,54.5,8.8", topic=f"{topic}/+", mode="history")
    page.until(lambda: page.text("#history-note").startswith("3 events in view"))
    slider = page.find("#time")

    def move_to(minutes: float) -> None:
        page.driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
            slider,
            round((15 - minutes) / 15 * 1000) + 3,
        )

    for minutes in (12, 8, 4):
        move_to(minutes)
        page.until(lambda minutes=minutes: page.listed == [f"{topic}/{minutes}"])
    move_to(10)
    page.until(lambda: page.listed == [])
    assert page.text("#event-count") == "Nothing here at this time."


def test_history_is_played_from_the_start(page, publisher, bridge, topic):
    publisher.at(8.8, 54.5, topic, "", time=minutes_ago(14))
    bridge.found(f"/rest/geopublish/{topic}", 1)
    page.open(at="12,54.5,8.8", topic=topic, mode="history")
    page.until(lambda: page.text("#history-note").startswith("1 event in view"))
    Select(page.find("#speed")).select_by_value("3")
    page.type("k")
    page.until(lambda: page.listed == [topic])
    assert page.find("#play").get_attribute("aria-label") == "Pause"
    page.find("#play").click()
    assert page.find("#play").get_attribute("aria-label") == "Play"


def test_history_of_a_drawn_shape_is_what_was_inside(page, publisher, bridge, topic):
    publisher.at(8.86, 54.5, f"{topic}/outside", "", time=minutes_ago(5))
    publisher.at(8.8, 54.5, f"{topic}/inside", "", time=minutes_ago(5))
    bridge.found(f"/rest/geopublish/{topic}/+", 2)
    shape = "BUFFER(POINT(8.8 54.5),1000)"
    page.open(at="12,54.5,8.8", topic=f"{topic}/+", mode="history", shape=shape)
    page.type("3")
    page.until(lambda: page.texts("#watch-list .topic") == [f"{topic}/inside"])
    assert page.text("#watch-total") == "1"


def test_more_history_than_fits_is_loaded_where_the_slider_points(page, bridge, topic):
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_queued_messages_set(0)
    client.connect(bridge.broker.host, bridge.broker.port)
    client.loop_start()
    early, late = minutes_ago(13), minutes_ago(2)
    client.publish(f"$geo/at=POINT(8.8 54.5);time={early}/{topic}/early", qos=1)
    for n in range(5100):
        sent = client.publish(f"$geo/at=POINT(8.8 54.5);time={late}/{topic}/late", str(n), qos=1)
    sent.wait_for_publish(WAIT_S)
    client.disconnect()
    client.loop_stop()
    bridge.found(f"/rest/geopublish/{topic}/+", 5101)
    page.open(at="12,54.5,8.8", topic=f"{topic}/+", mode="history")
    page.until(lambda: "more as you move" in page.text("#history-note"))
    page.driver.execute_script(
        "const slider = document.getElementById('time');"
        "slider.value = 150; slider.dispatchEvent(new Event('input'))"
    )
    page.until(lambda: page.listed == [f"{topic}/early"])


def test_without_a_log_history_says_so_and_live_goes_on(page, start_bridge, topic):
    bridge = start_bridge(log=False)
    page.bridge = bridge
    page.open(at="12,54.5,8.8", topic=topic)
    publisher = Publisher(bridge)
    publisher.at(8.8, 54.5, topic, "now")
    page.until(lambda: page.listed == [topic])
    publisher.close()
    page.find("#mode-history").click()
    page.until(lambda: page.text("#history-note") == "The event log is off: there is no history.")


# Text from strangers

MARKUP = "<img src=x onerror=\"document.title='broken'\"><b>bold</b>"


def test_markup_in_topic_and_payload_is_text(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=f"{topic}/#", depth="9")
    # A slash would be another level of the topic.
    name = f"{topic}/{MARKUP.replace('/', '')}"
    publisher.at(8.8, 54.5, name.replace("%", "%25"), MARKUP)
    page.until(lambda: page.listed == [name])
    assert page.texts("#event-list .payload") == [MARKUP]
    assert page.texts("#legend-rows .topic") == [name]
    page.click_map()
    page.until(lambda: page.find("#details").is_displayed())
    assert page.texts("#details h2, #details pre") == [name, MARKUP]
    assert page.all("#panel b, #panel img, #legend b, #legend img") == []
    assert page.driver.title == "GeoMQTT map"


def test_markup_in_the_names_of_fences_and_clients_is_text(page, bridge, topic):
    stranger = Publisher(bridge, client_id=f"{topic} {MARKUP}")
    stranger.plain(f"$/SYS/MQTT/geofence/{MARKUP.replace('/', '')}", "BUFFER(POINT(8.8 54.5),9000)")
    stranger.plain("$/SYS/MQTT/location", "POINT(8.8 54.5)")
    page.open(at="15,54.5,8.8", topic=topic)
    page.until(lambda: page.text("#fence-count") not in ("", "0"))
    chain = ActionChains(page.driver, duration=0)

    def label() -> str:
        chain.move_to_element_with_offset(page.find("#map"), 30, 30).perform()
        chain.move_to_element_with_offset(page.find("#map"), 31, 31).perform()
        return "".join(page.texts(".leaflet-tooltip"))

    page.until(lambda: MARKUP in label())
    assert page.all(".leaflet-tooltip img, .leaflet-tooltip b") == []
    assert page.driver.title == "GeoMQTT map"
    stranger.close()


def test_a_payload_that_is_no_text_is_shown_in_base64(page, publisher, topic):
    page.open(at="12,54.5,8.8", topic=topic)
    publisher.at(8.8, 54.5, topic, b"\xff\xfe\x00")
    page.until(lambda: page.listed == [topic])
    page.find("#event-list button").click()
    assert page.text("#details .payload") == "//4A"
    assert "not text" in page.text("#details dl")
