"""The commands with which a user continues by hand after the quickstart."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from veen_cli.quickstart.world import STREAM, Running, World


def _set_path() -> list[str]:
    """Return a line that puts this program on the PATH, unless ``veen`` already finds it."""
    if (program := os.environ.get("VEEN_PROGRAM")) is not None:  # bin/veen of a checkout
        return [f"export PATH={shlex.quote(str(Path(program).parent))}:$PATH"]
    here = Path(sys.argv[0]).absolute()
    if shutil.which("veen") is not None or here.name != "veen":
        return []
    return [f"export PATH={shlex.quote(str(here.parent))}:$PATH"]


def continuing(world: World, hub: Running) -> list[str]:
    """Return commands that continue with the files that ``--keep`` left."""
    return [
        *_set_path(),
        f"cd {shlex.quote(str(world.root.absolute()))}",
        f"export VEEN_HUB={hub.url} VEEN_STREAM={STREAM}",
        f"export VEEN_TRUST={world.identity.hub_id.hex()}",
        f"veen hub start --data-dir hub --port {hub.port} --detach",
        "veen send 'A fourth message' --client alice --to bob",
        "veen stream --client bob --proofs",
        "veen verify evidence/*",
        "veen hub stop --data-dir hub",
        "veen hub fsck --data-dir hub",
    ]


def anew(hub: Running) -> list[str]:
    """Return commands that repeat the story with files of the user's own."""
    return [
        *_set_path(),
        "mkdir veen-demo && cd veen-demo",
        "veen keygen --out admin --no-passphrase",
        "veen keygen --out alice --no-passphrase",
        "veen keygen --out bob --no-passphrase",
        "veen hub init --data-dir hub --admin admin",
        f"veen hub start --data-dir hub --port {hub.port} --detach",
        f"export VEEN_HUB={hub.url} VEEN_STREAM=demo VEEN_TRUST=$(veen hub keys --data-dir hub --quiet)",
        "veen cap issue --issuer admin --subject alice --stream demo --out alice.cap",
        "veen cap authorize alice.cap --client alice",
        "veen send 'Hello Bob' --client alice --to bob",
        "veen stream --client bob --proofs",
        "veen hub stop --data-dir hub",
    ]
