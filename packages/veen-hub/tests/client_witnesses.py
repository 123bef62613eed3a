"""Hub processes with witnesses: a ``veen-witness`` process, and one that shares no code with it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import note_key, origin_of
from veen_core.tlog.policy import WitnessPolicy, parse_policy

from .client_fixtures import HubProcess
from .independent_witness import IndependentWitness

OURS, INDEPENDENT = "ours.example/w", "independent.example/w"
LISTENING = "veen-witness listening on "
AT_ONCE = {"max_entries": 1}
"""Settings of a hub log that grows with every batch."""


class WitnessProcess:
    """A ``veen-witness`` process that may be stopped and started again."""

    def __init__(self, root: Path, name: str, log_vkeys: Sequence[str]) -> None:
        self.root = root
        self.name = name
        logs = [word for vkey in log_vkeys for word in ("--log", vkey)]
        self.vkey = subprocess.run(
            [sys.executable, "-m", "veen_hub.witness.main", "--dir", root, "--init", name, *logs],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.start()

    def start(self) -> None:
        listen = f"--listen={self.url.removeprefix('http://') or '127.0.0.1:0'}"
        with (self.root.parent / f"{self.root.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "veen_hub.witness.main", "--dir", self.root, listen],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        line = self._process.stdout.readline() if ready else ""
        assert line.startswith(LISTENING), line
        self.url = line.removeprefix(LISTENING).strip()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def vkeys_of(identity: HubIdentity, origin: str | None = None) -> list[str]:
    name = origin if origin is not None else origin_of(identity.hub_id)
    return [note_key(key, name).text for key in identity.hub_keys]


@dataclass(slots=True)
class Watched:
    """A hub process and its witnesses."""

    hub: HubProcess
    ours: WitnessProcess
    other: IndependentWitness
    origin: str | None = None

    def policy_text(self, *, quorum: str = "all", max_age: int = 300, with_log: bool = True) -> str:
        logs = vkeys_of(self.hub.identity, self.origin)[:1] if with_log else []
        return "".join(
            f"{line}\n"
            for line in (
                *(f"log {vkey}" for vkey in logs),
                f"witness ours {self.ours.vkey}",
                f"witness other {self.other.vkey}",
                f"group both {quorum} ours other",
                "quorum both",
                f"#veen max-age {max_age}",
            )
        )

    def policy(self, **options: Any) -> WitnessPolicy:
        return parse_policy(self.policy_text(**options).encode())


@contextmanager
def watched(root: Path, *, origin: str | None = None, **hub_log: Any) -> Iterator[Watched]:
    """A hub process that its two witnesses cosign, whatever else ``hub_log`` sets."""
    with ExitStack() as stack:
        made: list[Any] = []

        def config(identity: HubIdentity) -> str:
            ours = WitnessProcess(root / "witness", OURS, vkeys_of(identity, origin))
            stack.callback(ours.stop)
            other = stack.enter_context(IndependentWitness(INDEPENDENT, vkeys_of(identity, origin)))
            made.extend((ours, other))
            witnesses = [{"key": each.vkey, "url": each.url} for each in (ours, other)]
            return json.dumps({"hub_log": {"witnesses": witnesses, "origin": origin, **hub_log}})

        hub = HubProcess(root, config=config)
        stack.callback(hub.kill)
        yield Watched(hub, *made, origin)
