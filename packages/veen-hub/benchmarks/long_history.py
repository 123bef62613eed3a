"""A label with ten million messages beside one with ten thousand: ``hub.growth7``, on demand only.

    python packages/veen-hub/benchmarks/run.py --only hub.growth7 --keep FOLDER

- ``hub.growth7_submit``, ``_page``, ``_proof``: the median time of a submit alone, of a page of 100 entries
  with receipts at a random place, and of an inclusion proof of a random entry, in the long label divided by
  the short one. Both hubs run and take turns; of each, the least of five medians counts.
  Each place is asked for twice, and the second time counts: the first time, the kernel may have to read
  the long label's 8 GB from disk. ``_page_first`` and ``_proof_first`` are of the first time.
- ``hub.growth7`` is the largest of the three.
- ``hub.growth7_open`` is the time to open the long data directory divided by that of the short one.
- ``hub.growth7_rss_mb`` is the resident memory of a hub and its processes over the long label, or over
  10^5 labels, whichever is more; ``hub.growth7_private_mb`` is without mapped files, such as the index, whose
  pages the kernel drops when it needs memory.

The histories are written with ``history.fill``, and used again if the folder has them. Ten million messages
take 10 GB.
"""

from __future__ import annotations

import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import history

from veen_core import H
from veen_core.api import ProofRequest, StreamRequest
from veen_core.ids import Label, StreamSeq
from veen_hub.load import request_of

HOST = "127.0.0.1"
TURNS = 5
OPENINGS = 3
PAGE = 100
FOLDERS = {"deep": "long", "shallow": "short"}
DONE = "done"
"""File that says that a history is complete."""
OPEN = (
    "import sys, time\nfrom pathlib import Path\nfrom veen_storage import Store\n"
    "began = time.perf_counter()\nstore = Store(Path(sys.argv[1]))\nprint(time.perf_counter() - began)\n"
    "store.close()"
)

Say = Callable[[str, float, float, bool], bool]


class RunningHub(Protocol):
    """A hub process, as ``run.running`` makes it."""

    port: int
    where: Label

    @property
    def pids(self) -> list[int]: ...


@dataclass(frozen=True)
class Tools:
    """What ``run`` provides."""

    new: Callable[[Path], Path]
    label: Callable[[Path], Label]
    running: Callable[[Path], AbstractContextManager[RunningHub]]
    submits: Callable[[RunningHub, int, int], float]
    """Returns the median time of so many submits, from a client_seq on."""
    seed: bytes
    """Of the writer of the histories."""
    say: Say


def measure(keep: Path, *, short: int, long: int, labels: int, samples: int, tools: Tools) -> bool:
    """Write the histories that ``keep`` lacks, and print the figures."""
    shallow_root = _history(keep / FOLDERS["shallow"], short, tools)
    deep_root = _history(keep / FOLDERS["deep"], long, tools)
    wide_root = _wide(keep / "wide", labels, tools)
    openings = [(_open_seconds(deep_root), _open_seconds(shallow_root)) for _ in range(OPENINGS)]
    opening = min(deep for deep, _shallow in openings) / min(shallow for _deep, shallow in openings)
    first = {name: _take_seqs(keep / folder, TURNS * samples) for name, folder in FOLDERS.items()}
    rng = random.Random(7)  # noqa: S311 - repeatable, not secret
    with ExitStack() as stack:
        deep, shallow = (stack.enter_context(tools.running(root)) for root in (deep_root, shallow_root))
        least: dict[str, float] = {}
        for turn in range(TURNS):
            for name, hub, size in (("deep", deep, long), ("shallow", shallow, short)):
                places = [rng.randint(1, size - PAGE) for _ in range(max(1, samples // 4))]
                found = {
                    "submit": tools.submits(hub, samples, first[name] + turn * samples),
                    "page_first": _median(hub, "/v1/stream", [_page(hub, at) for at in places]),
                    "page": _median(hub, "/v1/stream", [_page(hub, at) for at in places]),
                    # Another tree: the hub caches proofs.
                    "proof_first": _median(hub, "/v1/proof", [_proof(hub, at, size) for at in places]),
                    "proof": _median(hub, "/v1/proof", [_proof(hub, at, size - 1) for at in places]),
                }
                for kind, seconds in found.items():
                    least[name + kind] = min(seconds, least.get(name + kind, seconds))
        resident, private = _memory_mb(deep.pids)
    with tools.running(wide_root) as wide:
        tools.submits(wide, samples, _take_seqs(keep / "wide", samples))
        resident_wide, private_wide = _memory_mb(wide.pids)
    ratios = {kind: least["deep" + kind] / least["shallow" + kind] for kind in found}
    for kind, ratio in ratios.items():
        tools.say(f"hub.growth7_{kind}", ratio, 1.3, ok=ratio <= 1.3)
    worst = max(ratio for kind, ratio in ratios.items() if not kind.endswith("_first"))
    heavy = max(resident, resident_wide)
    ok = tools.say("hub.growth7", worst, 1.3, ok=worst <= 1.3)
    tools.say("hub.growth7_open", opening, 2.0, ok=opening <= 2)
    lean = max(private, private_wide)
    tools.say("hub.growth7_private_mb", lean, 400, ok=lean < 400)
    return tools.say("hub.growth7_rss_mb", heavy, 400, ok=heavy < 400) and ok


def _history(root: Path, count: int, tools: Tools) -> Path:
    """Return a data directory with so many messages in one label."""
    if not (root / DONE).exists():
        root.mkdir(parents=True)
        tools.new(root / "data")
        history.fill(root / "data", [tools.label(root / "data")], count, tools.seed)
        (root / DONE).write_text(f"{count}\n", encoding="ascii")
    return root / "data"


def _wide(root: Path, labels: int, tools: Tools) -> Path:
    """Return a data directory with one message in each of many labels."""
    if not (root / DONE).exists():
        root.mkdir(parents=True)
        tools.new(root / "data")
        many = [Label(H(number.to_bytes(8, "big"))) for number in range(labels)]
        history.fill(root / "data", many, 1, tools.seed)
        (root / DONE).write_text(f"{labels}\n", encoding="ascii")
    return root / "data"


def _take_seqs(root: Path, count: int) -> int:
    """Return the first of so many client_seqs that no earlier run has used in this directory."""
    file = root / "next client_seq"
    first = int(file.read_text(encoding="ascii")) if file.exists() else 1
    file.write_text(f"{first + count}\n", encoding="ascii")
    return first


def _open_seconds(root: Path) -> float:
    """Return the time that a new process takes to open a data directory."""
    opened = subprocess.run(  # noqa: S603 - the program above
        [sys.executable, "-c", OPEN, str(root)], capture_output=True, text=True, check=True
    )
    return float(opened.stdout)


def _page(hub: RunningHub, at: int) -> bytes:
    start = StreamSeq(at)
    return StreamRequest(label=hub.where, from_seq=start, max_items=PAGE, with_receipts=True).encode()


def _proof(hub: RunningHub, at: int, size: int) -> bytes:
    return ProofRequest(label=hub.where, stream_seq=StreamSeq(at), tree_size=StreamSeq(size)).encode()


def _median(hub: RunningHub, path: str, bodies: list[bytes]) -> float:
    """Return the median time of one request after the other, over a plain socket."""
    times = []
    with socket.create_connection((HOST, hub.port)) as connection:
        for request in [request_of(path, body) for body in bodies]:
            began = time.perf_counter()
            connection.sendall(request)
            _read_answer(connection)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def _read_answer(connection: socket.socket) -> None:
    answer = b""
    while (end := answer.find(b"\r\n\r\n")) < 0:
        answer += connection.recv(2**20)
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
    head = answer[:end].lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(answer) < end + 4 + length:
        answer += connection.recv(2**20)


def _memory_mb(pids: list[int]) -> tuple[float, float]:
    """Return the resident memory of processes, and the part of it that maps no file."""
    resident = private = 0.0
    for pid in pids:
        rows = [row.split() for row in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()]
        megabytes = {
            row[0]: int(row[1]) / 1_024 for row in rows if row and row[0].startswith(("VmRSS", "RssFile"))
        }
        resident += megabytes["VmRSS:"]
        private += megabytes["VmRSS:"] - megabytes["RssFile:"]
    return resident, private
