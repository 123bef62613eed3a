"""Run the vectors and the corpus in a headless Chromium, by the code of the pages.

Usage: python agreement/in_page.py CORPUS.json SCRIPT.js. SCRIPT is ``tests/in_page.ts``, compiled. Exit
code 1: a vector fails, or a verdict differs from that of ``veen verify``; 2: no Chromium is found.
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
from typing import Any

VECTORS = Path(__file__).resolve().parents[3] / "veen-core/tests/vectors"
PUBLISHED = 53
JUDGED = (
    *(
        "receipt",
        "checkpoint",
        "msg",
        "mmr_proof",
        "mmr_consistency",
        "hub_identity",
        "equivocation",
        "handover",
    ),
    *("hub_evidence", "hub_log_fork", "label_fork", "cap_token", "identity_card", "ciphertext"),
)
"""Objects whose vectors the page verifies; ``tests/vectors.ts`` has a function for each."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MAX_SECONDS = 120


def find_browser() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    named = os.environ.get("VEEN_CHROMIUM")
    return named or next(filter(None, map(shutil.which, BROWSERS)), None)


def published() -> list[Any]:
    found = [json.loads(path.read_bytes()) for path in sorted((VECTORS / "published").iterdir())]
    assert len(found) == PUBLISHED
    return found


def vectors() -> list[dict[str, Any]]:
    """Every vector of the judged objects, as the page takes it."""
    found = []
    for folder in sorted(each for name in JUDGED for each in (VECTORS / name).iterdir()):
        context, expect = ({}, {})
        if (path := folder / "context.json").exists():
            context = json.loads(path.read_bytes())
        if (path := folder / "expect.json").exists():
            expect = json.loads(path.read_bytes())
        wire = "".join((folder / "wire.hex").read_text().split())
        found.append(
            {
                "object": folder.parent.name,
                "name": folder.name,
                "wire": wire,
                "context": context,
                "match": expect.get("match"),
            }
        )
    return found


def run(browser: str, corpus: dict[str, Any], script: Path) -> dict[str, Any]:
    """Open a page with the corpus in the browser, from disk; return what its title says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corpus.js").write_text(f"globalThis.corpus = {json.dumps(corpus)};")
        shutil.copy(script, folder / "in_page.js")
        page = folder / "page.html"
        scripts = '<script src="corpus.js"></script><script src="in_page.js"></script>'
        page.write_text(f'<!doctype html><meta charset="utf-8"><title>-</title>{scripts}')
        flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--timeout={1_000 * MAX_SECONDS}")
        done = subprocess.run(
            [browser, *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            check=True,
            timeout=2 * MAX_SECONDS,
        )
    found = re.search(r"<title>(\{.*?\})</title>", done.stdout, re.DOTALL)
    if found is None:
        raise SystemExit("the page did not finish in time")
    said: dict[str, Any] = json.loads(html.unescape(found[1]))
    return said


def main() -> int:
    browser = find_browser()
    if browser is None:
        return 2
    corpus = json.loads(Path(sys.argv[1]).read_text())
    said = run(browser, corpus | {"published": published(), "vectors": vectors()}, Path(sys.argv[2]))
    for failure in said["failures"]:
        print(failure)
    if "verdicts" not in said:
        return 1
    verdicts, folds = said["verdicts"], said["folds"]
    judged = f"{said['vectors']} vectors, {said['refused']} of them refused"
    print(f"in Chromium: {said['published']} published vectors, {judged}")
    agreed = f"{folds['agreed']} of {folds['total']} cases agree with veen-overlays"
    print(f"groups of queries, wallets and registers: {agreed}")
    share = verdicts["agreed"] / verdicts["total"]
    cases = f"{verdicts['agreed']} of {verdicts['total']} cases; the same words in {verdicts['worded']}"
    print(f"console.agree {share:.4f} ({cases})")
    return 1 if said["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
