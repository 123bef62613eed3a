"""``veen rpc``: serve and call from the command line, programs as methods, transcripts as evidence (RPC0)."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from veen_cli.rpc.serve import LogLines
from veen_core.errors import VeenError
from veen_core.ids import HubId
from veen_overlays.rpc.transcript import Transcript, TranscriptMessage, verify_transcript

from .running import Done, ending_hubs, environment, veen

MAX_WAIT_SECONDS = 60
PROGRAM = """
import json, sys
call = json.load(sys.stdin)
if call["method"] == "double":
    print(json.dumps({"twice": call["args"] * 2, "idem": call["idem"]}))
elif call["method"] == "refuse":
    print(json.dumps({"code": "app.no", "detail": "not today"}))
    sys.exit(1)
else:
    sys.exit(7)
"""


@dataclass
class World:
    """An open hub with a server that runs a program."""

    root: Path
    url: str
    hub_id: str
    server: subprocess.Popen[str]

    def rpc(self, *args: object, who: str = "alice") -> Done:
        flags = ("--hub", self.url, "--trust", self.hub_id, "--client", self.root / who)
        return veen("rpc", *args, "--stream", "calls", "--reader", self.root / "reader", *flags)


def start_server(root: Path, url: str, hub_id: str) -> subprocess.Popen[str]:
    """Start a server and wait until it says that it serves."""
    (root / "program.py").write_text(PROGRAM)
    methods = [part for name in ("double", "refuse", "crash") for part in ("--method", name)]
    options = ("--stream", "calls", "--reader", root / "reader", "--client", root / "bob", "--json")
    options = (*options, "--hub", url, "--trust", hub_id)
    process = subprocess.Popen(
        ["veen", "rpc", "serve", "--exec", f"{sys.executable} {root / 'program.py'}", *methods, *options],
        env=environment(root / ".config"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "serving crash, double, refuse" in process.stderr.readline()
    return process


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("rpc")
    for name in ("alice", "bob", "reader"):
        veen("keygen", "--out", root / name, "--no-passphrase").ok()
    with ending_hubs(root):
        veen("hub", "init", "--data-dir", root / "hub", "--no-admin").ok()
        options = ("--port", 0, "--open", "--detach", "--json")
        url = veen("hub", "start", "--data-dir", root / "hub", *options).json["url"]
        hub_id = veen("hub", "keys", "--data-dir", root / "hub", "--quiet").out.strip()
        made = World(root, url, hub_id, start_server(root, url, hub_id))
        yield made
        made.server.kill()
        made.server.communicate()


def test_a_program_serves_methods(world: World) -> None:
    found = world.rpc("call", "double", "21", "--idem", 5, "--json").json
    assert found["result"] == {"twice": 42, "idem": 5}
    assert world.rpc("call", "double", "1", "--idem", 5, "--json").json["result"] == found["result"]
    assert "app.no: not today" in world.rpc("call", "refuse").failed(4)
    crashed = world.rpc("call", "crash").failed(4)
    assert "rpc.internal: the method failed on the server; ask the server's operator" in crashed
    assert "rpc.unknown_method" in world.rpc("call", "nothing").failed(4)
    assert "ARGS are not JSON" in world.rpc("call", "double", "{").failed(1)
    assert "ARGS cannot be a record" in world.rpc("call", "double", "1.5").failed(1)


def test_a_transcript_that_cannot_be_written_is_refused_before_the_call(world: World) -> None:
    before = world.rpc("list", "--json").json["count"]
    told = world.rpc("call", "double", "1", "--transcript", world.root / "none" / "call.veenr").failed(1)
    assert "nothing was sent" in told
    assert world.rpc("list", "--json").json["count"] == before


def test_the_log_of_a_server_has_the_fields_of_an_event() -> None:
    record = logging.LogRecord("veen.rpc", logging.WARNING, "", 0, "rpc_send_failed", None, None)
    record.fields = {"record": "rpc.reply.v1", "reason": "no hub"}
    assert LogLines().format(record) == "rpc_send_failed record=rpc.reply.v1 reason=no hub"


@pytest.mark.parametrize("program", ["/nonexistent/program", "'open", ""], ids=["none", "quote", "empty"])
def test_a_program_that_cannot_start_is_refused_before_the_server_announces_itself(
    world: World, program: str
) -> None:
    assert "--exec" in world.rpc("serve", "--exec", program, "--method", "x").failed(1)


def test_only_pinned_servers_count(world: World) -> None:
    bob = veen("id", "show", "--client", world.root / "bob", "--json").json["id_sign"]
    assert world.rpc("call", "double", "2", "--server", bob, "--json").json["server"] == bob
    assert "rpc.no_server" in world.rpc("call", "double", "2", "--server", "ab" * 32).failed(2)


def test_list_info_and_stats_show_the_fold(world: World) -> None:
    world.rpc("call", "double", "2").ok()
    rows = world.rpc("list", "--json").json["calls"]
    assert {row["status"] for row in rows} <= {"answered", "failed"}
    servers = world.rpc("info", "--json").json["servers"]
    assert [(row["alive"], row["methods"]) for row in servers] == [(True, ["crash", "double", "refuse"])]
    assert world.rpc("stats", "--json").json["methods"]["double"]["answered"] >= 1


@pytest.fixture(scope="module")
def transcripts(world: World) -> list[Transcript]:
    found = []
    for n in range(2):
        path = world.root / f"{n}.veenr"
        world.rpc("call", "double", n, "--transcript", path)
        found.append(Transcript.decode(path.read_bytes()))
    return found


def test_a_transcript_verifies_offline_against_the_pinned_hub(
    world: World, transcripts: list[Transcript]
) -> None:
    assert transcripts
    path = world.root / "0.veenr"
    verdict = veen("verify", path, "--trust", world.hub_id).ok().out
    assert "✓" in verdict
    assert all(clause in verdict for clause in ("P1", "P15", "RPC0.1", "KEX0.2", "not proved"))
    veen("verify", path, "--trust", "ab" * 32).failed(3)
    assert "give --trust" in veen("verify", path).out
    shown = veen("inspect", path, "--json").json
    text = json.dumps(shown)
    assert '"twice": 0' in text
    assert '"method": "double"' in text


Change = Callable[[Transcript, Transcript], Transcript]


def flipped(data: bytes, at: int = -9) -> bytes:
    return (
        data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if at != -1 else data[:-1] + bytes([data[-1] ^ 1])
    )


def altered(part: str, change: Callable[[TranscriptMessage], TranscriptMessage]) -> Change:
    return lambda one, _other: replace(one, **{part: change(getattr(one, part))})


FORGED: dict[str, tuple[Change, str]] = {
    "the reply of another call": (lambda a, b: replace(a, reply=b.reply), "parent_id"),
    "the request of another call": (lambda a, b: replace(a, request=b.request), "parent_id"),
    "request and reply swapped": (lambda a, _b: replace(a, request=a.reply, reply=a.request), "(B14|server)"),
    "no announcement": (lambda a, _b: replace(a, announcement=a.request), "B14"),
    "an altered reply": (altered("reply", lambda m: replace(m, msg=flipped(m.msg))), "sig"),
    "an altered request": (altered("request", lambda m: replace(m, msg=flipped(m.msg, 200))), "."),
    "another secret": (altered("reply", lambda m: replace(m, disclosure=bytes(32))), "disclosed secret"),
    "another root": (
        altered(
            "reply",
            lambda m: replace(
                m, evidence=replace(m.evidence, checkpoint=flipped(m.evidence.checkpoint, 130))
            ),
        ),
        "reply",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_transcript_is_refused_with_its_clause(
    name: str, world: World, transcripts: list[Transcript]
) -> None:
    change, reason = FORGED[name]
    forged = change(*transcripts)
    with pytest.raises(VeenError, match=reason):
        verify_transcript(forged, pinned=HubId.from_hex(world.hub_id))
    verify_transcript(transcripts[0], pinned=HubId.from_hex(world.hub_id))


def test_every_flipped_byte_of_a_transcript_is_refused(world: World, transcripts: list[Transcript]) -> None:
    """But for the time from which the hub's first key is valid, which nothing signs (core §8.4)."""
    wire, pin = transcripts[0].encode(), HubId.from_hex(world.hub_id)
    for at in range(0, len(wire), 13):
        try:
            changed = Transcript.decode(flipped(wire, at))
            verify_transcript(changed, pinned=pin)
        except VeenError:
            continue
        told = {each.evidence.identity.hub_keys[0].valid_from for each in messages_of(changed)}
        assert len(told) == 2, f"byte {at} was changed, and the transcript verifies"


def messages_of(transcript: Transcript) -> tuple[TranscriptMessage, ...]:
    return transcript.announcement, transcript.request, transcript.reply


def test_sigterm_finishes_running_calls_and_withdraws_the_server(world: World) -> None:
    world.server.send_signal(signal.SIGTERM)
    output, _ = world.server.communicate(timeout=MAX_WAIT_SECONDS)
    assert world.server.returncode == 0
    assert json.loads(output)["executed"] >= 1
    assert "rpc.no_server" in world.rpc("call", "double", "2").failed(2)
    assert [row["alive"] for row in world.rpc("info", "--json").json["servers"]] == [False]
