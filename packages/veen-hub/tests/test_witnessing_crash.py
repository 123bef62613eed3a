"""Kill -9 under load with hub checkpoints and cosigning: never two roots at one size, never a smaller size.

``VEEN_CRASH_ROUNDS`` for more than the usual twenty.
"""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from veen_core.errors import DecodeError
from veen_core.keys import SigningSeed
from veen_core.tlog.add_checkpoint import parse_add_checkpoint
from veen_core.tlog.tree_head import TreeHead, parse_signed_head
from veen_hub.witness.folder import WitnessFolder
from veen_storage import Store
from veen_testing.ports import free_port

from .conftest import StartProcess
from .hub_logs import HUB_ID, HUB_VKEY, cosigners, published, wait_for_size
from .independent_witness import IndependentWitness
from .people import Writer
from .serving import HubProcess, request, until
from .test_crash import Client
from .witnessing import WitnessProcess

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "20"))
OURS, OTHER = "ours.example/w", "independent.example/w"


@dataclass
class Sightings:
    """Every hub checkpoint that one observer has seen, in the order in which it saw them."""

    who: str
    roots: dict[int, bytes] = field(default_factory=dict)
    largest: int = 0
    wrong: list[str] = field(default_factory=list)

    def see(self, head: TreeHead) -> None:
        if head.size < self.largest:
            self.wrong.append(f"{self.who} saw size {head.size} after {self.largest}")
        self.largest = max(self.largest, head.size)
        if self.roots.setdefault(head.size, head.root) != head.root:
            self.wrong.append(f"{self.who} saw two roots at size {head.size}")


def watch(port: int, seen: Sightings) -> None:
    """Read the published hub checkpoint until the hub is gone."""
    while True:
        try:
            answer = request(port, "GET", "/log/checkpoint", timeout=10)
        except (OSError, http.client.HTTPException):
            return
        if answer.status == 200:
            seen.see(parse_signed_head(answer.body).head)
        time.sleep(0.005)


def settings(ours: WitnessProcess, other: IndependentWitness, heads_file: Path) -> str:
    return f"""
hub_log:
  max_entries: 20
  witnesses:
    - {{key: "{ours.vkey}", url: "{ours.url}"}}
    - {{key: "{other.vkey}", url: "{other.url}"}}
  memories: {{required: 3, heads_file: "{heads_file}"}}
"""


def start(start_process: StartProcess, config: Path) -> HubProcess:
    hub = start_process("data", "--open", f"--config={config}")
    until(lambda: hub.status().not_signing is None, f"the hub signs: {hub.status().not_signing}")
    return hub


def test_kill_9_under_load_never_gives_two_roots_at_one_size_nor_a_smaller_size(
    start_process: StartProcess, tmp_path: Path
) -> None:
    chance = random.Random(7)
    WitnessFolder(tmp_path / "witness").create(OURS, SigningSeed(bytes(32)), [HUB_VKEY])
    ours = WitnessProcess(tmp_path / "witness", port=free_port())
    readers, witness = Sightings("a reader"), Sightings("the witness")

    def note(body: bytes) -> None:
        try:
            witness.see(parse_add_checkpoint(body).checkpoint.head)
        except DecodeError as exc:
            witness.wrong.append(str(exc))

    config, heads_file = tmp_path / "hub.yaml", tmp_path / "heads"
    clients = [
        Client(Writer(f"client {n}", HUB_ID, to=f"stream {n % 3}"), together=(1, 4, 16, 64)[n])
        for n in range(4)
    ]
    with IndependentWitness(OTHER, [HUB_VKEY]) as other:
        other.answer = note
        config.write_text(settings(ours, other, heads_file))
        heads_file.touch()
        hub = start(start_process, config)
        for number in range(ROUNDS):
            threads = [threading.Thread(target=client.run, args=(hub.port,)) for client in clients]
            threads.append(threading.Thread(target=watch, args=(hub.port, readers)))
            for thread in threads:
                thread.start()
            enough = len(witness.roots) + chance.choice((0, 1, 1, 2, 4))
            until(lambda enough=enough: len(witness.roots) >= enough, "the hub log has grown")  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.2))  # the moment of the crash is what is random here
            if number % 5 == 4:
                ours.kill()
            hub.kill()
            for thread in threads:
                thread.join()
            if number % 5 == 4:
                ours = WitnessProcess(tmp_path / "witness", port=ours.port)
            hub = start(start_process, config)
        hub.accept(Writer("the last", HUB_ID).next())
        signed = wait_for_size(hub, max(readers.largest, witness.largest) + 1)
        until(lambda: cosigners(published(hub) or signed) == {OURS, OTHER}, "both witnesses have cosigned")
        assert hub.stop() == 0
        told = [line["event"] for line in hub.lines]
        assert "signing_stopped" not in told
        ours.stop()
    assert readers.wrong + witness.wrong == []
    assert len(witness.roots) > ROUNDS
    with Store(tmp_path / "data") as store:
        for seen in (readers, witness):
            for size, root in seen.roots.items():
                assert store.hub_log.root_at(size) == root, f"{seen.who} at size {size}"
