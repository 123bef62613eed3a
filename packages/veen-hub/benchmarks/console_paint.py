"""Time until the console of a hub on this machine is painted, and until it shows a verified identity."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

LOADS = 7
MAX_SECONDS = 30.0
SHOWN = """new Promise(resolve => {
    const look = () => {
        const paint = performance.getEntriesByName("first-contentful-paint")[0];
        const shown = document.querySelector(".fingerprint");
        if (paint && shown) resolve({ paint: paint.startTime, shown: performance.now() });
        else requestAnimationFrame(look);
    };
    look();
})"""


def first_paint(browser: str, folder: Path) -> tuple[float, float]:
    """Return the median times in ms: first contentful paint, and the verified identity on the page."""
    with running_hub(folder / "hub") as url, running_browser(browser, folder / "browser") as port:
        return asyncio.run(measure(url, port))


@contextmanager
def running_hub(data: Path) -> Iterator[str]:
    """Run a hub with a console on free ports; yield the console's address."""
    program = [sys.executable, "-m", "veen_hub.main", f"--data-dir={data}"]
    subprocess.run([*program, "--init"], check=True, stdout=subprocess.DEVNULL)
    config = data.with_name("hub.yaml")
    config.write_text("console: {port: 0}\n")
    flags = [f"--config={config}", "--port=0", "--open"]
    process = subprocess.Popen(
        [*program, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr)
        yield next(event["url"] for event in events if event["event"] == "console_listening")
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def running_browser(browser: str, folder: Path) -> Iterator[int]:
    """Run a headless browser; yield the port of its debugger."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
    process = subprocess.Popen(
        [browser, *flags, f"--user-data-dir={folder}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        said = (line for line in process.stderr if line.startswith("DevTools listening on "))
        yield int(next(said).rpartition(":")[2].partition("/")[0])
    finally:
        process.terminate()
        process.communicate()


async def measure(url: str, port: int) -> tuple[float, float]:
    times = []
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            (page,) = [each for each in await answer.json() if each["type"] == "page"]
        async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=2**24) as debugger:
            for number in range(LOADS):
                await call(debugger, "Page.navigate", url=f"{url}/?{number}")
                found = await call(
                    debugger, "Runtime.evaluate", expression=SHOWN, awaitPromise=True, returnByValue=True
                )
                times.append(found["result"]["value"])
    return median(each["paint"] for each in times), median(each["shown"] for each in times)


async def call(debugger: aiohttp.ClientWebSocketResponse, method: str, **parameters: Any) -> Any:
    await debugger.send_json({"id": 1, "method": method, "params": parameters})
    while True:
        answer = await debugger.receive_json(timeout=MAX_SECONDS)
        if answer.get("id") == 1:
            if "error" in answer:
                raise SystemExit(f"the browser refuses {method}: {answer['error']}")
            return answer["result"]
