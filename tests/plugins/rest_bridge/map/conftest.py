"""The map as tests use it: a real Chromium, the page in it, and somebody who publishes.

One Chromium serves all tests of a file, at a desk's width unless a test asks for less.
Every test ends with a look at the browser's console: there must be no error in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import paho.mqtt.client as paho
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.plugins.rest_bridge.conftest import Bridge

WAIT_S = 20
ROOT = Path(__file__).parents[4]
WIDTH, HEIGHT = 1280, 800
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    f"--window-size={WIDTH},{HEIGHT}",
)


class Page:
    """The map as somebody uses it."""

    def __init__(self, driver: webdriver.Chrome, bridge: Bridge) -> None:
        self.driver = driver
        self.bridge = bridge

    def open(self, **address: str) -> None:
        """Go to the page as if for the first time, at an address of its own."""
        self.driver.get("about:blank")
        fragment = "&".join(f"{name}={quote(text)}" for name, text in address.items())
        self.driver.get(f"{self.bridge.url}/#{fragment}")
        if address.get("mode") != "history":
            self.until(lambda: self.status == "live")

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Read many texts at once: rows come and go while one asks for them one by one."""
        found: list[str] = self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)",
            selector,
        )
        return found

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def until(self, condition: Callable[[], Any], seconds: float = WAIT_S) -> Any:
        # Lists are made anew while one looks at them.
        ignored = [StaleElementReferenceException]
        return WebDriverWait(self.driver, seconds, 0.05, ignored).until(lambda _: condition())

    @property
    def status(self) -> str:
        return self.find("#status").get_attribute("data-status") or ""

    @property
    def following(self) -> str:
        return self.find("#status").get_attribute("title") or ""

    @property
    def listed(self) -> list[str]:
        return self.texts("#event-list .topic")

    def type(self, *keys: str, at: str = "body") -> None:
        self.find(at).send_keys(*keys)

    def click_map(self, right: int = 0, down: int = 0) -> None:
        """Click so many pixels from the middle of the map."""
        chain = ActionChains(self.driver, duration=0)
        chain.move_to_element_with_offset(self.find("#map"), right, down).click().perform()

    def module(self, name: str, code: str) -> Any:
        """Run code with one of the page's modules at hand as `m`."""
        result = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            f"import('/js/{name}').then((m) => {{ {code} }}).then(done, (e) => done(String(e)));"
        )
        return result

    def console(self) -> list[str]:
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")
        ]


def chromium_options(profile: Path) -> webdriver.ChromeOptions:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return options


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = chromium_options(tmp_path_factory.mktemp("chromium"))
    # The driver is named: selenium must not look for one in the network.
    browser = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    browser.set_script_timeout(WAIT_S)
    yield browser
    browser.quit()


def wide(driver: webdriver.Chrome, width: int = WIDTH, height: int = HEIGHT) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture
def page(driver: webdriver.Chrome, bridge: Bridge) -> Iterator[Page]:
    wide(driver)
    page = Page(driver, bridge)
    yield page
    complaints = page.console()
    if driver.current_url != "about:blank":
        driver.execute_script("localStorage.clear()")
        driver.get("about:blank")
    assert complaints == []


class Publisher:
    """A standard MQTT client that says places in topics."""

    def __init__(self, bridge: Bridge, client_id: str = "") -> None:
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id)
        self._client.connect(bridge.broker.host, bridge.broker.port)
        self._client.loop_start()

    def at(
        self, lon: float, lat: float, topic: str, payload: str | bytes = "", **more: str
    ) -> None:
        conditions = ";".join([f"at=POINT({lon} {lat})", *(f"{k}={v}" for k, v in more.items())])
        self.plain(f"$geo/{conditions}/{topic}", payload)

    def plain(self, topic: str, payload: str | bytes) -> None:
        self._client.publish(topic, payload, qos=1).wait_for_publish(WAIT_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def publisher(bridge: Bridge) -> Iterator[Publisher]:
    publisher = Publisher(bridge)
    yield publisher
    publisher.close()
