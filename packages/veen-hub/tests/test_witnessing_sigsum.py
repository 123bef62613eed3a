"""A hub cosigned by a witness not written here: sigsum-witness, where it is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from veen_core.tlog.note import parse_key
from veen_testing.ports import free_port

from .conftest import StartHub
from .hub_logs import AT_ONCE, copy_directory, wait_for_size
from .people import HUB_KEY, Writer
from .serving import RunningHub, until
from .test_witness_sigsum import openssh_key, run, serving, tool

LOG = f"sigsum.org/v1/tree/{hashlib.sha256(HUB_KEY.public).hexdigest()}"
"""The only form of origin that sigsum-witness takes."""


def start_signing(start_hub: StartHub, settings: dict[str, Any]) -> RunningHub:
    hub = start_hub(**settings)
    until(lambda: hub.status().not_signing is None, "the witness has answered")
    return hub


def test_a_witness_not_written_here_cosigns_and_remembers_a_hub(
    start_hub: StartHub, place: Path, tmp_path: Path
) -> None:
    program, key = tool("sigsum-witness"), tool("sigsum-key")
    run(key, "generate", "-o", tmp_path / "witness")
    (tmp_path / "hub.pub").write_text(openssh_key(HUB_KEY.public))
    port = free_port()
    public = bytes.fromhex(run(key, "to-hex", "-k", tmp_path / "witness.pub").strip())
    name = f"sigsum.org/v1/witness/{hashlib.sha256(public).hexdigest()}"
    vkey = run(key, "to-vkey", "-k", tmp_path / "witness.pub", "-n", name, "-t", "cosignature/v1").strip()
    command = [
        *(program, "-k", tmp_path / "witness", f"--log-key={tmp_path / 'hub.pub'}"),
        *(f"--state-file={tmp_path / 'state'}", f"127.0.0.1:{port}"),
    ]
    settings = {
        "gating": False,
        "hub_log__origin": LOG,
        "hub_log__witnesses": [{"key": vkey, "url": f"http://127.0.0.1:{port}"}],
        **AT_ONCE,
    }
    with serving(port, tmp_path / "sigsum-witness.log", *command):
        hub = start_signing(start_hub, settings)  # the witness is asked about an empty log
        alice = Writer("alice", hub.hub_id)
        for size in range(1, 8):
            hub.accept(alice.next())
            signed = wait_for_size(hub, size)
            (line,) = filter(parse_key(vkey).is_named_by, signed.note.signatures)
            assert parse_key(vkey).is_valid(signed.note.text, line.signature)
            if size == 3:
                hub.stop()
                copy_directory(hub.root, place / "old")
                hub = start_signing(start_hub, settings)
        hub.stop()
        old = start_hub("old", **settings)
        until(lambda: "the hub is behind" in (old.status().not_signing or ""), "the witness remembers more")
