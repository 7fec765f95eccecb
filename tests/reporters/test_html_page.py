"""The page in a real browser: headless Chromium, spoken to over its debugging pipe."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcheck.reporters import html

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
LAPTOP, PHONE = (1280, 800), (390, 844)
WAIT = 60
# The debugging pipe is read from descriptor 3 and written to 4.
ON_3_AND_4 = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")

spec = importlib.util.spec_from_file_location("pages", Path(__file__).with_name("test_html.py"))
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)


class Chromium:
    """One tab of a headless browser. `events` are what it told since the page was opened."""

    def __init__(self, folder: Path) -> None:
        read, self.out = os.pipe()
        self.back, write = os.pipe()
        command = [
            sys.executable, "-c", ON_3_AND_4, str(read), str(write), str(BROWSER),
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, pass_fds=(read, write), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read)
        os.close(write)
        self.numbers = itertools.count(1)
        self.session = ""
        self.events: list[dict[str, Any]] = []
        self.rest = b""
        target = next(
            t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.told()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def told(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            data = os.read(self.back, 1 << 16)
            assert data, "Chromium ended"
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(line)
        self.events.append(message)
        return message

    def open(self, file: Path, size: tuple[int, int] = LAPTOP, scheme: str = "light") -> None:
        width, height = size
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
        self.events.clear()
        self.ask("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.told()

    def value(self, expression: str) -> Any:
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def complaints(self) -> list[str]:
        """Console messages, exceptions and log entries since the page was opened."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def close(self) -> None:
        os.close(self.out)
        self.process.kill()
        self.process.wait(WAIT)
        os.close(self.back)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    tab = Chromium(tmp_path_factory.mktemp("chromium"))
    yield tab
    tab.close()


@pytest.fixture
def file(report, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(html.render(pages.full(report)), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_page_opens_without_an_error_and_fits_the_screen(browser, file, size, scheme):
    browser.open(file, size, scheme)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []
    assert browser.value("document.documentElement.scrollWidth") <= size[0]
    for part in (
        "h1 .verdict",
        ".finding .fix",
        ".chain .stage",
        ".items img",
        "svg.plot",
        "details",
    ):
        assert browser.value(f"document.querySelector({part!r}).getBoundingClientRect().width") > 0
    assert browser.value("document.scripts.length") == 0


def test_stages_stand_side_by_side_on_a_laptop_and_in_a_column_on_a_phone(browser, file):
    tops = "new Set([...document.querySelector('.chain').children].map(x => x.offsetTop)).size"
    browser.open(file, LAPTOP)
    assert browser.value(tops) == 1
    browser.open(file, PHONE)
    assert browser.value(tops) == browser.value("document.querySelector('.chain').children.length")


def test_text_can_be_read_in_light_and_in_dark(browser, file):
    """Contrast of body text and of each severity's tag on its ground, WCAG AA: 4.5."""
    shown = """(() => {
      const parts = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const light = c => parts(c).map(v => v / 255)
        .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
      const ground = e => { while (e) { const c = getComputedStyle(e).backgroundColor;
        if (c !== 'rgba(0, 0, 0, 0)') return c; e = e.parentElement; } return 'rgb(255,255,255)'; };
      return [...document.querySelectorAll('p, .tag, .verdict, .blame, dt, td, .changed, .state')]
        .map(e => { const [a, b] = [getComputedStyle(e).color, ground(e)].map(light);
          return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); });
    })()"""
    for scheme in ("light", "dark"):
        browser.open(file, LAPTOP, scheme)
        assert min(browser.value(shown)) >= 4.5


def test_following_a_finding_leads_to_its_stage(browser, file):
    browser.open(file)
    browser.value("document.querySelector('.finding a.jump').click()")
    assert browser.value("document.querySelector(':target').className").startswith("stage stage")


def test_hostile_text_runs_nothing(browser, report, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(html.render(pages.full(report, "".join(pages.HOSTILE))), encoding="utf-8")
    browser.open(path)
    assert browser.complaints() == []
    assert browser.value("document.scripts.length") == 0
    assert browser.requests()[1:] == [url for url in browser.requests()[1:] if url[:5] == "data:"]


def test_notebook_frame_shows_the_page_and_its_links_work(browser, report, tmp_path):
    path = tmp_path / "cell.html"
    path.write_text(f"<!DOCTYPE html><p>out</p>{html.framed(pages.full(report))}", encoding="utf-8")
    browser.open(path)
    assert browser.complaints() == []
    assert browser.value("document.querySelector('iframe').getBoundingClientRect().height") > 300
