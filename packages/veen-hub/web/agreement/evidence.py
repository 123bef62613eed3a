"""Make real evidence of every kind: with a hub, two witnesses and a bridge that run on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veen_cli.hub.process import launch
from veen_core.entry import split_frames
from veen_hub.ops.config import ENVIRONMENT

SCRIPTS = Path(sys.executable).parent
STREAM = "export/web/orders"
MESSAGES = 7


class Town:
    """A folder with the files that the commands leave in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}
        path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**inherited, "PATH": path, "VEEN_CONFIG_DIR": str(root / ".config")}

    def veen(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [SCRIPTS / "veen", *arguments],
            cwd=self.root,
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"veen {' '.join(arguments)} failed: {done.stderr}")
        return done.stdout.strip()

    @contextmanager
    def witness(self, folder: str) -> Iterator[str]:
        """Run the witness of a folder; yield its address."""
        process = subprocess.Popen(
            [SCRIPTS / "veen-witness", "--dir", folder, "--listen=127.0.0.1:0", "--log-level=error"],
            cwd=self.root,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("veen-witness listening on ").strip()
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()

    @contextmanager
    def hub(self) -> Iterator[str]:
        """Run the hub; yield its address."""
        flags = [f"--data-dir={self.root / 'hub'}", "--port=0", "--open", "--log-level=error"]
        log = self.root / "hub.log"
        process, url, _ = launch([*flags, f"--config={self.root / 'hub.yaml'}"], log, without=ENVIRONMENT)
        try:
            yield url
        finally:
            process.terminate()
            process.wait()


def make(root: Path) -> tuple[bytes, str]:
    """Write evidence into ``root / "evidence"``; return the hub_id and the text of the witness policy."""
    town = Town(root)
    town.veen("hub", "init", "--data-dir", "hub", "--no-admin", "--quiet")
    log = town.veen("hub", "keys", "--note", "--data-dir", "hub", "--quiet")
    hub_id = town.veen("hub", "keys", "--data-dir", "hub", "--quiet")
    town.veen("keygen", "--out", "ann", "--no-passphrase", "--quiet")
    keys = {}
    for name in ("alice", "bob"):
        town.veen("witness", "init", f"{name}.example/w", "--dir", name, "--log", log, "--quiet")
        lines = town.veen("witness", "status", "--dir", name).splitlines()
        keys[name] = next(line.split()[1] for line in lines if line.startswith("witness"))
    witnesses = "\n".join(f"witness {name} {key}" for name, key in keys.items())
    policy = f"log {log}\n{witnesses}\ngroup both all alice bob\nquorum both\n"
    (root / "policy.txt").write_text(policy)
    with town.witness("alice") as alice, town.witness("bob") as bob:
        rows = ", ".join(
            f"{{key: {keys[name]}, url: '{url}'}}" for name, url in (("alice", alice), ("bob", bob))
        )
        (root / "hub.yaml").write_text(f"hub_log: {{witnesses: [{rows}]}}\n")
        with town.hub() as url:
            _fill(town, url, hub_id)
    _copies(town)
    return bytes.fromhex(hub_id), policy


def _fill(town: Town, url: str, hub_id: str) -> None:
    flags = ["--stream", STREAM, "--hub", url, "--trust", hub_id, "--client", "ann"]
    lines = "".join(f"order {number}\n" for number in range(1, MESSAGES + 1))
    town.veen("send", "--batch", *flags, stdin=lines)
    town.veen("send", "the last order", "--confirm", "--witnesses", "policy.txt", *flags)
    out = town.root / "evidence"
    out.mkdir()
    for seq in (3, 4, MESSAGES + 1):
        town.veen("receipt", "get", str(seq), "--out", f"evidence/receipt-{seq}.cbor", *flags)
    town.veen("proof", "get", "3", "--out", "evidence/proof.cbor", *flags)
    town.veen("proof", "get", "3", "--against", "4", "--out", "evidence/proof-4.cbor", *flags)
    town.veen("consistency", "get", "4", str(MESSAGES + 1), "--out", "evidence/consistency.cbor", *flags)
    town.veen("hub", "keys", "--hub", url, "--out", "evidence/hub-identity.cbor")
    to_hub = ["--to-hub", "3", "-o", "evidence/message.evidence", "--witnesses", "policy.txt"]
    town.veen("proof", "get", *to_hub, *flags)
    bridge = ["--issuer", "ann", "--stream", STREAM, "--operator", "web", "--no-passphrase"]
    town.veen(
        *("bridge", "init", "--role", "bridge_online", "--out", "bridge"),
        *("--hub", url, "--trust", hub_id, *bridge),
    )
    town.veen("bridge", "export", "--config", "bridge/bridge.yaml", "--out", "bundle")


def _copies(town: Town) -> None:
    """Export the log of the stopped hub in both forms; copy a chunk, a MSG, a card, a token and a note."""
    for form in ("set", "chunks"):
        town.veen(
            *("hub", "export", "--data-dir", "hub", "--stream", STREAM),
            *("--form", form, "--out", f"export-{form}"),
        )
    out = town.root / "evidence"
    chunk = next((town.root / "export-chunks").glob("chunk-*.log"))
    (out / "chunk.log").write_bytes(chunk.read_bytes())
    (out / "message.cbor").write_bytes(next(split_frames(chunk.read_bytes())).msg_bytes)
    (out / "token.cap").write_bytes((town.root / "bridge" / "role.cap").read_bytes())
    (out / "card.pub").write_bytes(next((town.root / "ann").glob("*.pub")).read_bytes())
    (out / "checkpoint.note").write_bytes((town.root / "hub" / "hublog" / "published").read_bytes())
