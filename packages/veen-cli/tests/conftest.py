from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import Done, ending_hubs, veen

STREAM = "orders"


@dataclasses.dataclass(frozen=True)
class Town:
    """One real hub process, three identities, and a token that lets alice write to ``orders``."""

    root: Path
    url: str
    probes_url: str
    hub_id: str

    @property
    def probes(self) -> tuple[str, ...]:
        """Return the flags of commands that use the probes address."""
        return ("--hub", self.url, "--probes", self.probes_url)

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def as_(self, who: str, *args: object, stdin: bytes = b"") -> Done:
        """Run ``veen`` with this hub and this identity."""
        flags = ("--hub", self.url, "--trust", self.hub_id, "--client", self / who)
        return veen(*args, *flags, stdin=stdin)


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the developer's own contexts and variables from every test."""
    for name in (
        "HUB",
        "TRUST",
        "CLIENT",
        "DATA_DIR",
        "STREAM",
        "CONTEXT",
        "WITNESSES",
        "PASSPHRASE",
        "PASSPHRASE_FILE",
    ):
        monkeypatch.delenv(f"VEEN_{name}", raising=False)
    monkeypatch.setenv("VEEN_CONFIG_DIR", str(tmp_path / ".config"))


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    root = tmp_path_factory.mktemp("town")
    for name in ("admin", "alice", "bob"):
        veen("keygen", "--out", root / name, "--no-passphrase").ok()
    made = veen("hub", "init", "--data-dir", root / "hub", "--admin", root / "admin", "--json").json
    with ending_hubs(root):
        started = veen(
            "hub",
            "start",
            "--data-dir",
            root / "hub",
            "--port",
            "0",
            "--detach",
            "--log-level",
            "error",
            "--json",
        ).json
        town = Town(root, started["url"], started["probes_url"], made["hub_id"])
        token = root / "alice.cap"
        issued = veen(
            "cap",
            "issue",
            "--issuer",
            root / "admin",
            "--subject",
            root / "alice",
            "--stream",
            STREAM,
            "--out",
            token,
        )
        issued.ok()
        town.as_("alice", "cap", "authorize", token).ok()
        yield town
        veen("hub", "stop", "--data-dir", root / "hub").ok()


@pytest.fixture(scope="session")
def square(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """An open hub, for tests without tokens; ``realm`` is the folder of the shared reader key."""
    root = tmp_path_factory.mktemp("square")
    for name in ("admin", "alice", "bob", "realm"):
        veen("keygen", "--out", root / name, "--no-passphrase").ok()
    data = ("--data-dir", root / "hub")
    made = veen("hub", "init", *data, "--admin", root / "admin", "--json").json
    with ending_hubs(root):
        started = veen(
            "hub", "start", *data, "--port", "0", "--open", "--detach", "--log-level", "error", "--json"
        ).json
        yield Town(root, started["url"], started["probes_url"], made["hub_id"])
        veen("hub", "stop", *data).ok()
