"""Measure how fast the installed ``veen`` starts; one JSON line per figure.

    python packages/veen-cli/benchmarks/run.py            41 rounds; about two minutes
    python packages/veen-cli/benchmarks/run.py --quick    15 rounds; under a minute

- ``cli.send_ms`` divides the time of ``veen send`` of one message, to a hub on loopback with real files, by
  the time of a Python process that imports the libraries that it needs and does nothing else.
- ``cli.version_ms`` divides the time of ``veen --version`` by the time of a Python process that does nothing.

Each value is a ratio of medians. The four commands take turns, so that a busy machine slows down all of them.
Every run is a new process of the console script. Its bytecode is compiled, as after the first run of an
installed command; the identity has no passphrase, whose cost is a setting and not a start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

SCRIPTS: Final = Path(sys.executable).parent
LIBRARIES: Final = "import click, aiohttp, nacl.bindings, cbor2"
MAX_SEND: Final = 1.4
MAX_VERSION: Final = 8.0

FULL_ROUNDS: Final = 41
QUICK_ROUNDS: Final = 15
TINY_ROUNDS: Final = 1


class World:
    """A folder with an identity and a hub, and the environment in which commands run there."""

    def __init__(self, root: Path, *, own_bytecode: bool) -> None:
        self.root = root
        hidden = ("VEEN_", "PYTHON", "COVERAGE_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.environment = {**inherited, "VEEN_CONFIG_DIR": str(root / "config")}
        if own_bytecode:
            self.environment["PYTHONPYCACHEPREFIX"] = str(root / "bytecode")

    def run(self, program: str, *args: str) -> str:
        """Run a program of this environment and return its output."""
        done = subprocess.run(  # noqa: S603 - veen or python of this environment
            [sys.executable if program == "python" else SCRIPTS / program, *args],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def veen_json(self, *args: str) -> Any:
        return json.loads(self.run("veen", *args, "--json"))

    @contextlib.contextmanager
    def hub(self) -> Iterator[tuple[str, ...]]:
        """Run an open hub; yields the options with which the identity reaches it."""
        data = ("--data-dir", "hub")
        self.run("veen", "keygen", "--out", "alice", "--no-passphrase")
        made = self.veen_json("hub", "init", *data, "--admin", "alice")
        started = self.veen_json("hub", "start", *data, "--port", "0", "--open", "--detach")
        try:
            yield (
                "--hub",
                started["url"],
                "--trust",
                made["hub_id"],
                "--client",
                "alice",
                "--stream",
                "bench",
            )
        finally:
            self.run("veen", "hub", "stop", *data)

    def seconds(self, program: str, *args: str) -> float:
        start = time.perf_counter()
        self.run(program, *args)
        return time.perf_counter() - start


def say(name: str, value: float, target: float, ok: bool) -> bool:
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}), flush=True)  # noqa: T201
    return ok


def measure(place: Path, rounds: int) -> bool:
    world = World(place, own_bytecode=rounds > TINY_ROUNDS)  # compiling it takes longer than a tiny run
    with world.hub() as options:
        commands = {
            "nothing": ("python", "-c", "pass"),
            "libraries": ("python", "-c", LIBRARIES),
            "version": ("veen", "--version"),
            "send": ("veen", "send", "two coffees", *options),
        }
        if rounds > TINY_ROUNDS:
            for command in commands.values():
                world.run(*command)  # compiles the bytecode
        times = [{name: world.seconds(*each) for name, each in commands.items()} for _ in range(rounds)]
    median = {name: statistics.median(each[name] for each in times) for name in commands}
    send, version = median["send"] / median["libraries"], median["version"] / median["nothing"]
    ok = say("cli.send_ms", send, MAX_SEND, send <= MAX_SEND)
    return say("cli.version_ms", version, MAX_VERSION, version <= MAX_VERSION) and ok


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"run {QUICK_ROUNDS} rounds")
    parser.add_argument("--tiny", action="store_true", help="check that it runs; ignore the figures")
    parser.add_argument("--directory", type=Path, help="folder for the hub and the identity")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hub is stopped
    rounds = TINY_ROUNDS if options.tiny else QUICK_ROUNDS if options.quick else FULL_ROUNDS
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        return 0 if measure(Path(place), rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
