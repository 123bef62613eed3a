"""Kill -9 of a replica, and sometimes of its primary, under load: both have the same log in the end (P9).

``VEEN_CRASH_ROUNDS`` is the number of kills of the replica.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from veen_testing.ports import free_port

from .conftest import StartProcess
from .log_ledger import read_ledger
from .people import Writer
from .replicas import assert_same_log, assert_sound, catch_up
from .serving import HubProcess, InOnePiece, until
from .test_crash import UNSEEN, Client

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "50"))
ROUNDS_PER_PRIMARY_KILL = 6
PAUSE_SEC = 0.01
"""Between two requests of one client: the log must not outgrow the test."""


class Load:
    """Clients that send until they are stopped; they wait while the hub is away."""

    def __init__(self, clients: list[Client], port: int) -> None:
        self.clients, self._port = clients, port
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(client,)) for client in clients]

    def _send(self, client: Client) -> None:
        while not self._stopping.is_set():
            connection = InOnePiece("127.0.0.1", self._port, timeout=10)
            with suppress(OSError, http.client.HTTPException):
                while not self._stopping.wait(PAUSE_SEC):
                    client._send(connection)
            connection.close()
            self._stopping.wait(PAUSE_SEC)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


class Victims:
    """Replicas of one data directory, forked from a process that has imported everything."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    @property
    def listened(self) -> int:
        """How many of them have come as far as listening."""
        return self._log.read_bytes().count(b"veen-hub listening on ")

    def start(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("start\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{child}").exists(), f"process {child} has ended")


@contextmanager
def victims(*flags: str, log: Path) -> Iterator[Victims]:
    command = [sys.executable, str(Path(__file__).with_name("hub_victim.py")), *flags]
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        yield Victims(process, log)
    finally:
        process.kill()
        process.communicate()


def test_kill_9_of_a_replica_or_its_primary_under_load_loses_and_doubles_nothing(
    start_process: StartProcess, tmp_path: Path
) -> None:
    chance, root = random.Random(9), tmp_path / "replica"
    address = (f"--port={free_port()}", "--probes-port=0")
    primary = start_process("primary", "--open", *address)
    port, hub_id = primary.port, primary.status().identity.hub_id
    clients = [Client(Writer(f"client {n}", hub_id), together=(1, 8, 40)[n]) for n in range(3)]
    flags = [f"--data-dir={root}", "--port=0", f"--replica-of={primary.url}"]
    HubProcess(root, f"--replica-of={primary.url}").kill()  # the first copy has tests of its own
    with Load(clients, port), victims(*flags, log=tmp_path / "victims.log") as replicas:
        for round_ in range(1, ROUNDS + 1):
            before, replica = replicas.listened, replicas.start()
            if round_ % 3:  # while it follows; else while it starts
                until(lambda before=before: replicas.listened > before, "the replica listens")  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.2))  # the moment of the crash is what is random here
            if round_ % ROUNDS_PER_PRIMARY_KILL == 0:
                primary.kill()
            replicas.kill(replica)
            if round_ % ROUNDS_PER_PRIMARY_KILL == 0:
                primary = start_process("primary", "--open", *address)
    check(primary, clients, tmp_path)


def check(primary: HubProcess, clients: list[Client], tmp_path: Path) -> None:
    """Compare the two logs byte by byte, and the replica's ledger with what was acknowledged."""
    label, hub_id = clients[0].writer.label, primary.status().identity.hub_id
    replica = HubProcess(tmp_path / "replica", f"--replica-of={primary.url}")
    try:
        catch_up(primary, replica, label)
        ledger = read_ledger(replica.url, hub_id, label)
        assert primary.stop() == 0
        assert replica.stop() == 0
    finally:
        replica.kill()
    assert [receipt.stream_seq for _, _, receipt in ledger] == list(range(1, len(ledger) + 1))
    by_message = {(client, seq): receipt for client, seq, receipt in ledger}
    assert len(by_message) == len(ledger), "a message is there twice"
    for client in clients:
        assert client.receipts
        for seq, receipt in client.receipts.items():
            found = by_message.get((client.writer.client_id, seq))
            assert found is not None, "an acknowledged message is lost"
            assert receipt is UNSEEN or found == receipt
    assert_same_log(tmp_path / "primary", tmp_path / "replica")
    assert_sound(tmp_path / "replica")
