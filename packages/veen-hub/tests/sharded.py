"""A real hub with several shards, and the load on it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from veen_core.api import StreamRequest, StreamResponse, SubmitResponse
from veen_core.cap import Rate
from veen_core.hub_log import HubProofRequest, HubProofResponse
from veen_core.ids import Label, StreamSeq
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.receipt import Receipt
from veen_storage.shards.reshard import reshard
from veen_storage.shards.sharded_layout import owner_of

from .people import Writer
from .serving import PATIENCE, HubProcess, make_directory, until

SHARDS = 2
NUMBERS = count(100)
"""Of streams that no other test writes to."""


class ShardedHub(HubProcess):
    """A real ``veen-hub`` with two shards, and the directory it runs on."""

    def __init__(self, root: Path, *, port: int = 0, shards: int = SHARDS, settings: str = "") -> None:
        self.root = root
        config = root.parent / "hub.yaml"
        config.write_text(f"shards: {shards}\n{settings}")
        super().__init__(root, f"--config={config}", f"--port={port}", log=root.parent / "hub.log")
        self.hub_id = self.status().identity.hub_id

    def shard_pid(self, number: int) -> int:
        """The process id of a shard, from the last line that says that it serves; slow to ask again."""
        mine = [x for x in self.lines if x["event"] == "shard_serves" and x["part"] == f"shard-{number}"]
        time.sleep(0.02)
        return int(mine[-1]["pid"])

    def writer(self, number: int, *, gated: bool = True, rate: Rate | None = None) -> Writer:
        made = Writer(f"writer {number}", self.hub_id, to=f"orders/{number}")
        if gated:
            made.auth_ref = self.authorize(made.token(rate=rate)).auth_ref
        return made

    def writer_of(self, shard: int, *, gated: bool = True) -> Writer:
        """A new writer whose label this shard owns."""
        while (
            owner_of(Writer("", self.hub_id, to=f"orders/{(number := next(NUMBERS))}").label, SHARDS) != shard
        ):
            pass
        return self.writer(number, gated=gated)


Start = Callable[..., ShardedHub]


def new_directory(place: Path, name: str = "two", *, limits: Limits = DEFAULT_LIMITS) -> Path:
    """The directory of a new hub with two shards."""
    make_directory(place / "one", born=int(time.time()) - 100, limits=limits)
    reshard(place / "one", place / name, SHARDS)
    return place / name


def wait_for_head(hub: HubProcess, label: Label, seq: int) -> HubProofResponse:
    asked = HubProofRequest(label=label, stream_seq=StreamSeq(seq))
    until(lambda: hub.post("/v1/hublog/proof", asked).status == 200, "the hub log covers the entry")
    return hub.ask("/v1/hublog/proof", asked, HubProofResponse)


class Load(threading.Thread):
    """One writer that sends until ``ended`` is set, and keeps its receipts."""

    def __init__(self, hub: HubProcess, writer: Writer) -> None:
        super().__init__(daemon=True)
        self._hub, self._writer = hub, writer
        self.receipts: list[Receipt] = []
        self.refused: list[int] = []
        self.longest = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            wire = self._writer.next()
            began = time.monotonic()
            while not self.ended.is_set():
                try:
                    answer = self._hub.submit(wire)
                except (OSError, http.client.HTTPException):
                    time.sleep(0.02)
                    continue  # the connection was to the shard that was killed: ask again
                if answer.status == 200:
                    self.receipts.append(answer.read(SubmitResponse).receipt)
                    self.longest = max(self.longest, time.monotonic() - began)
                    break
                if answer.detail == "DUPLICATE":  # accepted before its answer was lost
                    break
                self.refused.append(answer.status)
                time.sleep(0.02)


def receipts_of(hub: HubProcess, label: Label) -> dict[StreamSeq, Receipt]:
    """Every receipt that the hub has for a label, read page by page."""
    found: dict[StreamSeq, Receipt] = {}
    start: StreamSeq | None = StreamSeq(1)
    while start is not None:
        asked = StreamRequest(label=label, from_seq=start, with_receipts=True)
        page = hub.ask("/v1/stream", asked, StreamResponse)
        found |= {item.stream_seq: item.receipt for item in page.items if item.receipt is not None}
        start = page.next_cursor
    return found


def check_receipts(hub: HubProcess, loads: list[Load]) -> None:
    """End the load, and check that every receipt is of an entry that the hub still has."""
    for load in loads:
        load.ended.set()
        load.join(PATIENCE)
        times = [receipt.hub_ts for receipt in load.receipts]
        assert times == sorted(times)
        stored = receipts_of(hub, load.receipts[0].label)
        assert all(stored[receipt.stream_seq] == receipt for receipt in load.receipts)
