"""A real Chromium, real hubs with a console, and a record of everything that the page asked for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

HAS_PLAYWRIGHT = find_spec("playwright") is not None
if not HAS_PLAYWRIGHT:  # the environment of the hub's other tests
    collect_ignore_glob = ["test_*.py"]

REQUIRED = os.environ.get("VEEN_BROWSER") == "required"
"""Whether tests that cannot run fail, as in CI, instead of being skipped."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
"""Longer than anything here takes: a test that waits so long has failed."""


def find_chromium() -> str | None:
    named = os.environ.get("VEEN_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if REQUIRED or find_chromium() is not None:
        return
    reason = f"no Chromium: install one, or name it in VEEN_CHROMIUM (looked for {', '.join(NAMES)})"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield made
        made.close()


@dataclass
class Traffic:
    """Every request of a page, and everything that it wrote to the console of the browser."""

    origin: str
    requests: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def check(self, *secrets: str) -> None:
        """The page asked only its own origin, sent no secret, and broke no rule of its policy."""
        away = [url for url in self.requests if not url.startswith((self.origin, "blob:", "data:"))]
        assert away == [], away
        everything = "\n".join([*self.requests, *self.bodies])
        assert not [secret for secret in secrets if secret in everything]
        broken = [text for text in self.said if "Content Security Policy" in text or "Uncaught" in text]
        assert broken == [], broken


OpenConsole = Callable[..., "Page"]


@pytest.fixture
def open_console(browser: Browser) -> Iterator[OpenConsole]:
    """``open_console(url, confirm=True)``: a page of its own, whose traffic is checked at the end."""
    contexts: list[tuple[BrowserContext, Traffic]] = []

    def opened(url: str, *, confirm: bool = True, fragment: str = "", **settings: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **settings})
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        traffic = Traffic(url.partition("?")[0].rstrip("/"))
        page.on("request", lambda request: traffic.requests.append(request.url))
        page.on("request", lambda request: traffic.bodies.append(request.post_data or ""))
        page.on("console", lambda message: traffic.said.append(message.text))
        page.on("pageerror", lambda error: traffic.said.append(f"Uncaught {error}"))
        page.traffic = traffic
        contexts.append((context, traffic))
        page.goto(url + fragment)
        if confirm:
            page.get_by_role("button", name="I have compared it myself").click()
            page.locator("#nav a").first.wait_for()
        return page

    yield opened
    for context, traffic in contexts:
        context.close()
        traffic.check()


FAULTY_HUB = Path(__file__).parents[3] / "veen-selftest" / "tests" / "faulty_hub.py"
PROGRAM = (sys.executable, str(FAULTY_HUB))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A hub with a witness, a console and messages; its faults can be switched on while it runs."""
    from .console_world import ConsoleWorld  # noqa: PLC0415 - veen-selftest is installed only here

    made = ConsoleWorld(tmp_path_factory.mktemp("console"), PROGRAM)
    yield made
    made.close()


@pytest.fixture
def healthy(world: Any) -> Iterator[Any]:
    world.fault = ""
    yield world
    world.fault = ""
