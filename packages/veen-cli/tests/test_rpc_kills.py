"""Servers and clients of calls are killed at random moments: every call has one effect and one answer.

``VEEN_RPC_KILLS`` is the number of kills, by default 12.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from veen_hub.client import Identity
from veen_hub.client.blocking import connect
from veen_overlays.fold.event import Message
from veen_overlays.live.opening import open_entry
from veen_overlays.rpc.calls import CALLS
from veen_overlays.rpc.exchange import INTERRUPTED
from veen_overlays.rpc.records import call_key

from .rpc_victim import STREAM
from .running import ending_hubs, environment, veen

KILLS = int(os.environ.get("VEEN_RPC_KILLS", "12"))
CALLS_PER_CLIENT = 4
MAX_WAIT_SECONDS = 90
VICTIM = Path(__file__).with_name("rpc_victim.py")


@dataclass
class Town:
    """An open hub, and the processes of a test."""

    root: Path
    url: str
    hub_id: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *args: object) -> subprocess.Popen[str]:
        role, *others = map(str, args)
        process = subprocess.Popen(
            [sys.executable, VICTIM, role, self.url, self.hub_id, str(self.root), *others],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(self.root / ".config"),
            text=True,
        )
        self.processes.append(process)
        return process

    def messages(self) -> list[Message]:
        reader = Identity.load(self.root / "reader")
        with connect(self.url, None, trust=self.hub_id) as hub:
            found = hub.stream(STREAM, readers=reader.dh_keys).read()
            return [open_entry(each.entry, each.receipt, reader.dh_keys) for each in found]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    for name in ("server", "reader", *(f"client{n}" for n in range(2))):
        veen("keygen", "--out", tmp_path / name, "--no-passphrase").ok()
    (tmp_path / "effects").mkdir()
    with ending_hubs(tmp_path):
        veen("hub", "init", "--data-dir", tmp_path / "hub", "--no-admin").ok()
        started = veen(
            "hub", "start", "--data-dir", tmp_path / "hub", "--port", 0, "--open", "--detach", "--json"
        )
        hub_id = veen("hub", "keys", "--data-dir", tmp_path / "hub", "--quiet").out.strip()
        made = Town(tmp_path, started.json["url"], hub_id)
        yield made
        for process in made.processes:
            process.kill()
            process.communicate()


def test_each_call_has_one_effect_and_one_answer_whoever_is_killed(town: Town) -> None:
    rng, servers = random.Random(7), ["a", "b"]
    running = {name: town.start("serve", name) for name in servers}
    answers: dict[int, set[str]] = {}
    kills, first = 0, 0
    while kills < KILLS:
        clients = {
            n: (town.start("call", f"client{n}", first + n * CALLS_PER_CLIENT, CALLS_PER_CLIENT), first)
            for n in range(2)
        }
        first += 2 * CALLS_PER_CLIENT
        for _ in range(min(3, KILLS - kills)):
            time.sleep(rng.uniform(0.05, 1.2))  # a random moment is what is tested
            kills += 1
            who = rng.choice(["a", "b", 0, 1])
            if isinstance(who, str):
                _kill(running[who])
                if rng.random() < 0.3:  # the server loses its memory and its client_id
                    _remove(town.root / f"{who}-state")
                running[who] = town.start("serve", who)
            else:
                process, begun = clients[who]
                _read(_kill(process), answers)
                again = town.start("call", f"client{who}", begun + who * CALLS_PER_CLIENT, CALLS_PER_CLIENT)
                clients[who] = again, begun
        for process, _ in clients.values():
            output, _ = process.communicate(timeout=MAX_WAIT_SECONDS)
            assert process.returncode == 0
            _read(output, answers)
    assert sorted(answers) == list(range(first)), "every reply is recoverable"
    _check_answers(answers)
    _check_effects(town, answers)


def _kill(process: subprocess.Popen[str]) -> str:
    process.kill()
    return process.communicate(timeout=30)[0]


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def _read(output: str, answers: dict[int, set[str]]) -> None:
    for line in output.splitlines():
        idem, _, found = line.partition(" ")
        answers.setdefault(int(idem), set()).add(found)


def _check_answers(answers: dict[int, set[str]]) -> None:
    for idem, found in answers.items():
        allowed = {f"TEXT {idem}"} | ({INTERRUPTED} if idem % 4 == 3 else set())
        assert len(found) == 1, f"call {idem} has two answers"
        assert found <= allowed


def _check_effects(town: Town, answers: dict[int, set[str]]) -> None:
    """Compare the effects with the log: by key, one effect; and one logical answer in the fold."""
    rows = CALLS.view(CALLS.fold(town.messages()).inner)
    by_key: dict[bytes, set[bytes]] = {}
    effects = town.root / "effects"
    for row in rows:
        assert row["status"] in ("answered", "failed")
        if row.get("code") == "rpc.deadline":
            continue
        key = call_key(row["method"], row["client_id"], row["idem"], row["request"])
        by_key.setdefault(bytes(key), set()).add(row["reply_hash"])
        once, path = effects / f"once-{key.hex()}", effects / f"note-{key.hex()}"
        if row["method"] == "note":
            assert path.read_text() == f"text {row['idem']}\n", "one effect"
        elif row["status"] == "answered":
            assert once.read_text() == f"text {row['idem']}\n", "one effect"
        elif once.exists():
            assert len(once.read_text().splitlines()) == 1, "an interrupted call has at most one effect"
    assert all(len(hashes) == 1 for hashes in by_key.values()), "a key has one answer"
    assert len(by_key) == len(answers)
