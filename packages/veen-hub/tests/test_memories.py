"""Memories: a hub that starts from an older copy of its directory signs nothing, whatever remembers it."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from veen_core.api import ReceiptRequest, ReceiptResponse
from veen_core.errors import ConfigError, VeenError
from veen_core.ids import HubId, MmrRoot, StreamSeq
from veen_core.keys import SigningKey
from veen_core.status import LabelRequest
from veen_core.tlog.note import Note, sign_note
from veen_core.tlog.tree import EMPTY_ROOT
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.ops.anchors import AnchorBackend, AnchorError, FileLedger
from veen_hub.ops.config import load as load_config
from veen_hub.ops.hub_anchor import hub_anchor
from veen_hub.ops.hub_log import heads_file as heads_files
from veen_hub.ops.hub_log.memories import ClaimedError, Memories, SilentMemoryError
from veen_hub.ops.init_rotate import init
from veen_hub.pipeline.signing_gate import SigningGate
from veen_storage import Files
from veen_testing.ports import free_port

from .conftest import StartHub, StartProcess
from .hub_logs import (
    AT_ONCE,
    HUB_ID,
    HUB_VKEY,
    ORIGIN,
    copy_directory,
    published_size,
    reason,
    wait_for_size,
)
from .independent_witness import IndependentWitness
from .people import HUB_KEY, Writer, envelope, signing_key
from .serving import Calls, HubProcess, RunningHub, until
from .test_client_settings import anchoring_in
from .test_hub_log import NEVER


def signs(hub: RunningHub | HubProcess) -> bool:
    return hub.status().not_signing is None


# --- an older copy


@dataclass
class Remembering:
    """Settings of a hub with one memory, of any kind."""

    settings: dict[str, Any]
    anchor: Callable[[], AnchorBackend] | None = None
    what: str = "hub log of"
    end: list[Callable[[], None]] = field(default_factory=list)

    def start(self, start_hub: StartHub, name: str) -> RunningHub:
        parts = {"anchor": self.anchor()} if self.anchor is not None else {}
        return start_hub(name, gating=False, **AT_ONCE, **self.settings, **parts)


@contextmanager
def a_witness(_start: StartHub, _place: Path) -> Iterator[Remembering]:
    with IndependentWitness("witness.example/w1", [HUB_VKEY]) as witness:
        yield Remembering({"hub_log__witnesses": [{"key": witness.vkey, "url": witness.url}]})


@contextmanager
def a_heads_file(_start: StartHub, place: Path) -> Iterator[Remembering]:
    (place / "heads").touch()
    yield Remembering({"hub_log__memories": {"heads_file": place / "heads"}})


class Mirror(BaseHTTPRequestHandler):
    """Serves the newest hub checkpoint that it was given, as a replica does."""

    held: bytes | None = None

    def do_GET(self) -> None:
        found = self.held if self.path == "/copies/log/checkpoint" else None
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def a_mirror(_start: StartHub, _place: Path) -> Iterator[Remembering]:
    kind = type("OneMirror", (Mirror,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    made = Remembering(
        {"hub_log__memories": {"urls": [f"http://127.0.0.1:{server.server_address[1]}/copies"]}}
    )
    made.settings["mirror"] = kind
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def a_ledger(_start: StartHub, place: Path) -> Iterator[Remembering]:
    yield Remembering({}, lambda: FileLedger(place / "ledger"), what="the anchor ledger holds label")


@contextmanager
def an_anchoring_hub(start: StartHub, place: Path) -> Iterator[Remembering]:
    anchoring = start("anchoring")
    folder = place / "identity of the hub"
    folder.mkdir()
    settings = anchoring_in(anchoring, folder)
    yield Remembering({}, lambda: hub_anchor(settings), what="the anchor ledger holds label")


KINDS = {
    "a witness": a_witness,
    "a heads file": a_heads_file,
    "a mirror": a_mirror,
    "an anchor ledger": a_ledger,
    "an anchoring hub": an_anchoring_hub,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_older_copy_signs_nothing_and_serves_reads(
    start_hub: StartHub, place: Path, kind: str
) -> None:
    with KINDS[kind](start_hub, place) as memory:
        mirror = memory.settings.pop("mirror", None)
        hub = memory.start(start_hub, "data")
        alice = Writer("alice", hub.hub_id)
        until(lambda: signs(hub), "the hub signs")
        first = hub.accept(alice.next())
        wait_for_size(hub, 1)
        keep_outside(hub, mirror)
        hub.stop()
        copy_directory(hub.root, place / "old")

        hub = memory.start(start_hub, "data")
        until(lambda: signs(hub), "the hub that has everything signs")
        for _ in range(3):
            hub.accept(alice.next())
        until(lambda: hub.store.hub_log.moved == 0, "the hub log covers everything")
        wait_for_size(hub, hub.store.hub_log.size)
        keep_outside(hub, mirror)
        size = hub.store.hub_log.size
        hub.stop()

        old = memory.start(start_hub, "old")
        until(lambda: "behind" in (old.status().not_signing or ""), "the older copy knows that it is behind")
        refuses_everything(old, memory.what)
        asked = ReceiptRequest(label=alice.label, stream_seq=StreamSeq(1))
        assert old.ask("/v1/receipt", asked, ReceiptResponse).receipt == first
        assert old.store.hub_log.size < size
        before = old.store.hub_log.size
        old.stop()

        again = start_hub("old", gating=False, **NEVER)
        assert (again.store.hub_log.size, again.store.hub_log.moved) == (before, 0), "it signed something"
        assert again.store.read.head(alice.label).stream_seq == 1  # type: ignore[union-attr]
        again.stop()

        hub = memory.start(start_hub, "data")
        until(lambda: signs(hub), "the newest copy still signs")
        assert hub.accept(alice.message(5)).stream_seq == 5


def keep_outside(hub: RunningHub, mirror: Any) -> None:
    """Copy the hub checkpoint to the mirror, and anchor what there is."""
    if mirror is not None:
        mirror.held = hub.get("/log/checkpoint").body
    if hub.hub.upkeep._anchor is not None:
        hub.run(hub.hub.upkeep.checkpoint(None))
        assert hub.run(hub.hub.upkeep.anchor(None))


def refuses_everything(hub: RunningHub, what: str) -> None:
    """Every call that would make the hub sign is refused, and the answers say why and what helps."""
    bob = Writer("bob", hub.hub_id, to="another stream")
    content = b"attachment"
    body = LabelRequest().encode()
    for answer in (
        hub.submit(bob.next()),
        hub.post("/v1/submit", b"".join(envelope(bob.next()) for _ in range(20)), "application/cbor-seq"),
        hub.post("/tooling/authorize", bob.token()),
        hub.admin("/tooling/checkpoint", body),
        hub.admin("/tooling/anchor", body),
        hub.admin("/tooling/checkpoint", LabelRequest(label=bob.label).encode()),
        hub.call("PUT", f"/v1/attachment/{_coid(content)}", content, bob.attachment_headers(content)),
    ):
        if answer.status == 200:  # a sequence has an answer for each message
            assert b"E.UNAVAILABLE" in answer.body
            continue
        if "no anchor is configured" in str(answer.error.message):
            continue
        assert answer.error.code == "E.UNAVAILABLE", answer
        assert what in str(answer.error.message)
        assert "veen hub fork" in str(answer.error.message)
        assert "retry-after" in answer.headers
    ready = hub.get("/readyz")
    assert ready.status == 503
    assert what in ready.json["why"]
    assert hub.get("/healthz").status == 200
    assert hub.metric("veen_signing") == 0


def _coid(content: bytes) -> str:
    from veen_core.hashing import H  # noqa: PLC0415

    return H(content).hex()


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_before_the_first_hub_checkpoint_signs_nothing(
    start_hub: StartHub, place: Path, kind: str
) -> None:
    with KINDS[kind](start_hub, place) as memory:
        mirror = memory.settings.pop("mirror", None)
        hub = memory.start(start_hub, "data")
        hub.stop()
        copy_directory(hub.root, place / "old")
        hub = memory.start(start_hub, "data")
        until(lambda: signs(hub), "the hub signs")
        hub.accept(Writer("alice", hub.hub_id).next())
        wait_for_size(hub, 1)
        keep_outside(hub, mirror)
        hub.stop()
        old = memory.start(start_hub, "old")
        until(lambda: "behind" in (old.status().not_signing or ""), "the older copy knows that it is behind")
        assert old.submit(Writer("bob", old.hub_id).next()).error.code == "E.UNAVAILABLE"


# --- how many must answer


def silent() -> dict[str, str]:
    """A witness at an address where nothing listens."""
    with IndependentWitness("silent.example/w", [HUB_VKEY]) as witness:
        return {"key": witness.vkey, "url": witness.url}


def test_a_hub_whose_only_memory_is_silent_waits_for_it(start_hub: StartHub) -> None:
    port_holder = IndependentWitness("witness.example/w1", [HUB_VKEY], seed=bytes(32), port=free_port())
    port = int(port_holder.url.rpartition(":")[2])
    port_holder._server.server_close()
    settings = {"hub_log__witnesses": [{"key": port_holder.vkey, "url": port_holder.url}]}
    hub = start_hub(gating=False, **AT_ONCE, **settings)
    until(lambda: "cannot be reached" in reason(hub), "the hub says whom it waits for")
    start = "0 of 1 required memories have answered (RESOLUTIONS P3)"
    assert reason(hub).startswith(f"signing: {start}: witness witness.example/w1: {port_holder.url}")
    assert hub.status().not_signing == start, "clients see no address"
    assert hub.get("/readyz").status == 503
    answer = hub.submit(Writer("alice", hub.hub_id).next())
    assert (answer.status, answer.error.code, answer.headers["retry-after"]) == (503, "E.UNAVAILABLE", "2")
    with IndependentWitness("witness.example/w1", [HUB_VKEY], seed=bytes(32), port=port):
        until(lambda: signs(hub), "the witness has answered")
        hub.accept(Writer("alice", hub.hub_id).next())
        assert hub.get("/readyz").status == 200


def test_one_answer_is_enough_unless_more_are_required(start_hub: StartHub, place: Path) -> None:
    (place / "heads").touch()
    settings = {"hub_log__witnesses": [silent()], "hub_log__memories": {"heads_file": place / "heads"}}
    hub = start_hub(gating=False, **settings)
    until(lambda: signs(hub), "the heads file has answered")
    assert hub.status().memories == ("witness silent.example/w", "the heads file")
    hub.stop()
    settings["hub_log__memories"] = {"heads_file": place / "heads", "required": 2}
    hub = start_hub(gating=False, **settings)
    until(lambda: (hub.status().not_signing or "").startswith("1 of 2 required"), "one has answered")
    hub.stop()
    settings["hub_log__memories"] = {"heads_file": place / "heads", "required": 0}
    assert signs(start_hub(gating=False, **settings))


def test_more_memories_than_there_are_cannot_be_required(start_hub: StartHub, place: Path) -> None:
    with pytest.raises(ConfigError, match=r"required: 3 memories must answer, but 1 can be asked: the heads"):
        start_hub(hub_log__memories={"heads_file": place / "heads", "required": 3})
    with pytest.raises(ConfigError, match=r"2 memories must answer, but 0 can be asked; configure memories"):
        start_hub("other", hub_log__memories={"required": 2})


def test_a_memory_that_contradicts_later_stops_a_hub_that_signs(start_hub: StartHub, place: Path) -> None:
    """One memory has let the hub sign; another answers later, and knows more."""
    holder = IndependentWitness("witness.example/w1", [HUB_VKEY], seed=bytes(32), port=free_port())
    port = int(holder.url.rpartition(":")[2])
    holder._server.server_close()
    (place / "heads").touch()
    hub = start_hub(
        gating=False,
        **AT_ONCE,
        hub_log__witnesses=[{"key": holder.vkey, "url": holder.url}],
        hub_log__memories={"heads_file": place / "heads"},
    )
    until(lambda: signs(hub), "the heads file has answered")
    hub.accept(Writer("alice", hub.hub_id).next())
    with IndependentWitness("witness.example/w1", [HUB_VKEY], seed=bytes(32), port=port) as witness:
        witness.state[ORIGIN] = (1_000, "A" * 43 + "=")
        until(lambda: not signs(hub), "the witness has answered")
        assert "remembers a hub log of size 1000" in (hub.status().not_signing or "")


def test_a_hub_without_a_memory_says_so_once(start_process: StartProcess) -> None:
    hub = start_process("data", "--open")
    assert hub.status().memories is None
    hub.stop()
    (line,) = [line for line in hub.lines if line["event"] == "no_memory"]
    assert line["level"] == "warn"
    assert "hub_log" in line["action"]


def test_the_log_of_a_hub_that_is_behind_names_the_commands(
    start_process: StartProcess, tmp_path: Path
) -> None:
    config = tmp_path / "hub.yaml"
    config.write_text(f"hub_log: {{max_entries: 1, memories: {{heads_file: {tmp_path / 'heads'}}}}}\n")
    (tmp_path / "heads").touch()
    hub = start_process("data", "--open", f"--config={config}")
    until(lambda: signs(hub), "the hub signs")
    hub.stop()
    copy_directory(tmp_path / "data", tmp_path / "old")
    hub = start_process("data", "--open", f"--config={config}")
    until(lambda: signs(hub), "the hub signs")
    hub.accept(Writer("alice", hub.status().identity.hub_id).next())
    assert hub.stop() == 0
    old = start_process("old", "--open", f"--config={config}")
    until(lambda: not signs(old), "the older copy knows")
    until(lambda: any(line["event"] == "signing_stopped" for line in old.lines), "it is logged")
    (line,) = [line for line in old.lines if line["event"] == "signing_stopped"]
    assert line["level"] == "critical"
    assert "1 less" in line["error"]
    assert "veen hub clone" in line["action"]
    assert "veen hub fork" in line["action"]
    assert old.stop() == 0


# --- two processes with one identity


@pytest.fixture
def twins(start_process: StartProcess, tmp_path: Path) -> tuple[HubProcess, Callable[[], HubProcess]]:
    """A hub with a heads file and one entry, and a function that starts a copy of it."""
    config = tmp_path / "hub.yaml"
    config.write_text(f"hub_log: {{memories: {{heads_file: {tmp_path / 'heads'}}}}}\n")
    (tmp_path / "heads").touch()
    hub = start_process("data", "--open", f"--config={config}")
    until(lambda: signs(hub), "the hub signs")
    hub.accept(Writer("alice", hub.status().identity.hub_id).next())
    wait_for_size(hub, 1)
    hub.stop()
    copy_directory(tmp_path / "data", tmp_path / "twin")
    hub = start_process("data", "--open", f"--config={config}")
    until(lambda: signs(hub), "the hub signs")
    return hub, lambda: start_process("twin", "--open", f"--config={config}")


def refused(hub: Calls, writer: Writer) -> bool:
    answer = hub.submit(writer.next())
    return answer.status == 503 and answer.error.code == "E.UNAVAILABLE"


def test_of_two_processes_with_one_identity_the_second_signs_nothing(
    twins: tuple[HubProcess, Callable[[], HubProcess]],
) -> None:
    hub, start_twin = twins
    hub_id = hub.status().identity.hub_id
    twin = start_twin()
    assert refused(twin, Writer("carol", hub_id)), "no receipt, from its first moment on"
    until(lambda: "another process" in (twin.status().not_signing or ""), "the twin finds the file locked")
    hub.accept(Writer("bob", hub_id).next())
    newest = wait_for_size(hub, 2)
    assert refused(twin, Writer("dave", hub_id))
    until(lambda: "the hub is behind" in (twin.status().not_signing or ""), "the first one has gone on")
    assert published_size(twin) == 1, "the twin has signed no hub checkpoint"
    hub.accept(Writer("erin", hub_id).next())
    assert wait_for_size(hub, 3).head.size > newest.head.size


def test_on_a_volume_without_locks_the_first_process_has_stopped_signing_before_the_second_begins(
    start_hub: StartHub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "heads").touch()
    settings = {"gating": False, "hub_log__memories": {"heads_file": place / "heads"}}
    hub = start_hub(**settings)
    until(lambda: signs(hub), "the hub signs")
    copy_directory(hub.root, place / "twin")
    (place / "heads.lock").unlink()  # the twin locks another file, as on a machine that locks do not reach
    monkeypatch.setattr(heads_files, "machine", lambda: "another machine")
    twin = start_hub(place / "twin", **settings)
    before = True
    while not signs(twin):
        before = signs(hub)
    assert not before, "the first one stopped first"
    assert "another process runs with the identity" in (hub.status().not_signing or "")
    assert refused(hub, Writer("carol", hub.hub_id))
    twin.accept(Writer("bob", hub.hub_id).next())
    wait_for_size(twin, 1)
    hub.stop()
    assert signs(twin), "the one that stops leaves the file to its owner"
    assert "on another machine" in heads(place)[3]


def test_on_a_volume_without_any_locks_a_second_process_of_the_same_machine_waits_too(
    start_hub: StartHub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def no_locks_for_the_heads_file(fd: int, kind: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "heads.lock":
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        lock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", no_locks_for_the_heads_file)
    (place / "heads").touch()
    settings = {"gating": False, "hub_log__memories": {"heads_file": place / "heads"}}
    hub = start_hub(**settings)
    until(lambda: signs(hub), "the hub signs")
    copy_directory(hub.root, place / "twin")
    twin = start_hub("twin", **settings)
    before = True
    while not signs(twin):
        before = signs(hub)
    assert not before, "the first one stopped first"
    assert "another process runs with the identity" in (hub.status().not_signing or "")


def test_a_claim_that_took_effect_and_failed_is_still_followed_by_the_wait(
    start_hub: StartHub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailsOnce(Files):
        failed = False

        def sync_directory(self, path: Path) -> None:
            super().sync_directory(path)
            if not self.failed:
                self.failed = True
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    hub = start_hub(gating=False)
    path = place / "heads"
    path.write_text(TreeHead(ORIGIN, 0, EMPTY_ROOT, ("claimed by 0011223344556677 on another",)).text)
    monkeypatch.setattr(heads_files, "Files", FailsOnce)
    heads_file = heads_files.HeadsFile(path, ORIGIN, hub.store.hub_log, notice_sec=3_600)

    async def story() -> None:
        with pytest.raises(SilentMemoryError, match="Input/output error"):
            await heads_file.compare()
        assert "on another" not in path.read_text(), "the claim of the other machine is gone"
        with pytest.raises(ClaimedError, match="stops signing within 3600 s"):
            await heads_file.compare()

    asyncio.run(story())
    assert not heads_file.is_open


def test_a_process_that_was_killed_is_succeeded(
    twins: tuple[HubProcess, Callable[[], HubProcess]],
) -> None:
    hub, start_twin = twins
    hub.kill()
    twin = start_twin()
    until(lambda: signs(twin), "nobody objects to its claim")
    twin.accept(Writer("bob", twin.status().identity.hub_id).next())


# --- the heads file


def heads(place: Path) -> list[str]:
    return (place / "heads").read_text().splitlines()


def start_with_heads(start_hub: StartHub, place: Path, **settings: Any) -> RunningHub:
    """Start a hub with the heads file of ``place``, which is created for its first start."""
    if not any(place.iterdir()):
        (place / "heads").touch()
    return start_hub(
        gating=False, **{**AT_ONCE, "hub_log__memories": {"heads_file": place / "heads"}, **settings}
    )


def test_the_heads_file_holds_the_checkpoint_before_anybody_sees_it(start_hub: StartHub, place: Path) -> None:
    hub = start_with_heads(start_hub, place)
    until(lambda: signs(hub), "the hub signs")
    alice = Writer("alice", hub.hub_id)
    for size in range(1, 6):
        hub.accept(alice.next())
        signed = wait_for_size(hub, size)
        origin, held, root = heads(place)[:3]
        assert origin == ORIGIN
        assert int(held) >= signed.head.size
        if int(held) == signed.head.size:
            assert [origin, held, root] == signed.head.text.splitlines()


@pytest.mark.parametrize("entries", [0, 1])
def test_a_missing_heads_file_is_no_answer(start_hub: StartHub, place: Path, entries: int) -> None:
    """Also for a hub without entries: it may have been restored from its first copy."""
    hub = start_with_heads(start_hub, place)
    until(lambda: signs(hub), "the hub signs")
    for _ in range(entries):
        hub.accept(Writer("alice", hub.hub_id).next())
    hub.stop()
    (place / "heads").rename(place / "elsewhere")
    hub = start_with_heads(start_hub, place)
    until(lambda: "does not exist; mount its volume" in reason(hub), "it is missed")
    assert not (place / "heads").exists()
    (place / "elsewhere").rename(place / "heads")
    until(lambda: signs(hub), "the file is back")


def test_init_creates_the_heads_file(tmp_path: Path) -> None:
    heads_file = tmp_path / "volume" / "heads"
    heads_file.parent.mkdir()
    config = load_config(None, {"data_dir": tmp_path / "data", "hub_log.memories.heads_file": heads_file})
    init(config, "default", None)
    assert heads_file.read_bytes() == b""


def test_an_empty_heads_file_is_a_first_start(start_hub: StartHub, place: Path) -> None:
    hub = start_hub(gating=False, **AT_ONCE)
    hub.accept(Writer("alice", hub.hub_id).next())
    signed = wait_for_size(hub, 1)
    hub.stop()
    (place / "heads").touch()
    hub = start_with_heads(start_hub, place)
    until(lambda: signs(hub), "the hub signs")
    assert heads(place)[:3] == signed.head.text.splitlines()
    hub.stop()
    assert heads(place) == signed.head.text.splitlines(), "a hub that stops gives its claim back"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe", "is damaged; if this data directory is the newest copy"),
        (b"veen.hub/5f\n12\n", "is damaged; if this data directory is the newest copy"),
        (b"another.example/log\n1\n" + b"A" * 43 + b"=\n", "is the heads file of 'another.example/log'"),
    ],
    ids=["no text", "too short", "another log"],
)
def test_a_heads_file_that_cannot_be_used_is_no_answer(
    start_hub: StartHub, place: Path, content: bytes, why: str
) -> None:
    (place / "heads").write_bytes(content)
    hub = start_with_heads(start_hub, place)
    until(lambda: why in reason(hub), "it is noticed")
    assert (place / "heads").read_bytes() == content


def test_a_heads_file_with_another_root_stops_the_hub(start_hub: StartHub, place: Path) -> None:
    hub = start_with_heads(start_hub, place)
    until(lambda: signs(hub), "the hub signs")
    hub.accept(Writer("alice", hub.hub_id).next())
    wait_for_size(hub, 1)
    hub.stop()
    (place / "heads").write_text(f"{ORIGIN}\n1\n{'A' * 43}=\n")
    hub = start_with_heads(start_hub, place)
    until(lambda: "two histories" in (hub.status().not_signing or ""), "it is noticed")


def test_a_crash_between_claim_and_record_is_no_rollback(start_hub: StartHub, place: Path) -> None:
    hub = start_with_heads(start_hub, place)
    until(lambda: signs(hub), "the hub signs")
    alice = Writer("alice", hub.hub_id)
    hub.accept(alice.next())
    wait_for_size(hub, 1)
    claimed = "\n".join([*heads(place)[:3], "claimed by 0011223344556677"]) + "\n"
    hub.accept(alice.next())
    wait_for_size(hub, 2)
    hub.stop()
    (place / "heads").write_text(claimed)  # as the crashed process has left it: the second is not recorded
    hub = start_with_heads(start_hub, place)
    until(lambda: signs(hub), "the hub signs")
    until(lambda: heads(place)[1] == "2", "the second is recorded")
    hub.accept(alice.next())
    wait_for_size(hub, 3)


def test_a_volume_that_hangs_delays_hub_checkpoints_and_no_submit(
    start_hub: StartHub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_files, "TIMEOUT_SEC", 0.2)
    hub = start_with_heads(start_hub, place)
    until(lambda: signs(hub), "the hub signs")
    alice = Writer("alice", hub.hub_id)
    hub.accept(alice.next())
    wait_for_size(hub, 1)
    (place / "heads").rename(place / "kept")
    os.mkfifo(place / "heads")  # whoever opens it to read waits for a writer
    for _ in range(20):
        hub.accept(alice.next())
    until(lambda: hub.store.hub_log.moved == 1, "a label waits for the next hub checkpoint")
    size = published_size(hub)
    with (place / "heads").open("wb") as volume:
        volume.write((place / "kept").read_bytes())
        (place / "kept").rename(place / "heads")
    until(lambda: hub.store.hub_log.moved == 0, "the volume answers again")
    assert wait_for_size(hub, size + 1)
    assert signs(hub)


# --- the tracker


def test_the_gate_stays_closed_after_a_contradiction_whatever_answers_later() -> None:
    from veen_hub.ops.hub_log.memories import behind_error  # noqa: PLC0415

    gate = SigningGate()
    memories = Memories(gate, ["one", "two"], 1)
    memories.contradicted("one", behind_error("one", 5, 3))
    memories.agrees("two")
    memories.silent("one", SilentMemoryError("gone"))
    assert "2 less" in (gate.closed or "")
    with pytest.raises(VeenError, match="this hub signs nothing now: the hub is behind"):
        gate.check()


def test_the_gate_stays_closed_until_every_memory_was_asked() -> None:
    """One that is fast and knows little does not speak for a slower one, which may contradict."""
    gate = SigningGate()
    memories = Memories(gate, ["fast", "slow"], 1)
    memories.agrees("fast")
    assert gate.closed == "1 of 2 memories have been asked (RESOLUTIONS P3)"
    memories.silent("slow", SilentMemoryError("gone"))
    assert gate.closed is None


def test_a_claim_of_another_process_keeps_the_gate_closed_whatever_others_say() -> None:
    gate = SigningGate()
    memories = Memories(gate, ["a witness", "the heads file"], 1)
    memories.agrees("a witness")
    memories.silent("the heads file", ClaimedError("locked"))
    assert gate.closed == "another process of this hub may be signing (RESOLUTIONS P3)"
    memories.agrees("the heads file")
    assert gate.closed is None


# --- a copy of the log at an address


def answering(mirror: type[Mirror], status: int, body: bytes) -> None:
    def do_get(self: Mirror) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    mirror.do_GET = do_get  # type: ignore[method-assign]


def signed_by(key: SigningKey, size: int) -> bytes:
    head = TreeHead(ORIGIN, size, bytes(32))
    return SignedHead(head, Note(head.text, (sign_note(key, ORIGIN, head.text),))).encode()


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, b"", "has no hub checkpoint"),
        (500, b"", "answers 500"),
        (302, b"", "answers 302"),
        (200, b"<html>hello</html>", "serves no hub checkpoint of this hub"),
        (200, b"x" * 200_000, "the answer has more than 131072 bytes"),
        (200, signed_by(signing_key("a stranger"), 9), "serves no hub checkpoint of this hub"),
    ],
    ids=["nothing", "an error", "a redirect", "a page", "too much", "another key"],
)
def test_an_address_that_serves_no_hub_checkpoint_of_this_hub_is_no_answer(
    start_hub: StartHub, place: Path, status: int, body: bytes, why: str
) -> None:
    with a_mirror(start_hub, place) as memory:
        mirror = memory.settings.pop("mirror")
        hub = start_hub(gating=False, **AT_ONCE)
        hub.accept(Writer("alice", hub.hub_id).next())
        wait_for_size(hub, 1)
        hub.stop()
        answering(mirror, status, body)
        hub = memory.start(start_hub, "data")
        until(lambda: why in reason(hub), "it is noticed")
        assert not signs(hub)


def test_a_copy_that_a_hub_with_this_key_signed_with_another_root_stops_the_hub(
    start_hub: StartHub, place: Path
) -> None:
    with a_mirror(start_hub, place) as memory:
        mirror = memory.settings.pop("mirror")
        hub = memory.start(start_hub, "data")
        until(lambda: signs(hub), "a hub without entries needs no copy")
        hub.accept(Writer("alice", hub.hub_id).next())
        mirror.held = signed_by(HUB_KEY, 1)
        until(lambda: not signs(hub), "the copy is compared again after a hub checkpoint")
        assert "copy 1 of the hub log remembers another root at size 1" in (hub.status().not_signing or "")


# --- the anchor ledger


def anchored(start_hub: StartHub, ledger: Path) -> None:
    """Run a hub that anchors two labels, and stop it."""
    hub = start_hub(gating=False, anchor=FileLedger(ledger))
    until(lambda: signs(hub), "the hub signs")
    for name in ("alice", "bob"):
        hub.accept(Writer(name, hub.hub_id, to=name).next())
    keep_outside(hub, None)
    hub.stop()


def test_a_ledger_that_is_missing_or_damaged_is_no_answer(start_hub: StartHub, place: Path) -> None:
    ledger = place / "ledger"
    anchored(start_hub, ledger)
    content = ledger.read_bytes()
    ledger.unlink()
    hub = start_hub(gating=False, anchor=FileLedger(ledger))
    until(lambda: "the ledger does not exist, and this hub has anchored" in reason(hub), "it is missed")
    hub.stop()
    ledger.write_bytes(b"")
    hub = start_hub(gating=False, anchor=FileLedger(ledger))
    until(lambda: "the ledger holds nothing of this hub, and this hub has anchored" in reason(hub), "emptied")
    hub.stop()
    ledger.write_bytes(b"\xff" + content[1:])
    hub = start_hub(gating=False, anchor=FileLedger(ledger))
    until(lambda: "damaged at byte 0" in reason(hub), "it is damaged")
    ledger.write_bytes(content)
    until(lambda: signs(hub), "it is whole again")


def test_a_ledger_with_another_root_stops_the_hub(start_hub: StartHub, place: Path) -> None:
    anchored(start_hub, place / "ledger")
    hub = start_hub(gating=False, anchor=FileLedger(place / "ledger"))
    until(lambda: signs(hub), "the hub signs")
    root = hub.run(FileLedger(place / "ledger").recall(hub.hub_id))[0]
    hub.stop()
    false = dataclasses.replace(root, mmr_root=MmrRoot(bytes(32)))
    asyncio.run(FileLedger(place / "ledger").publish(false))
    hub = start_hub(gating=False, anchor=FileLedger(place / "ledger"))
    until(lambda: "has two histories: the anchor ledger" in (hub.status().not_signing or ""), "it stops")


def test_roots_of_another_hub_in_a_shared_ledger_mean_nothing(start_hub: StartHub, place: Path) -> None:
    anchored(start_hub, place / "ledger")
    root = asyncio.run(FileLedger(place / "ledger").recall(HUB_ID))[0]  # type: ignore[index]
    foreign = dataclasses.replace(root, hub_id=HubId(bytes(32)), upto_seq=StreamSeq(99))
    asyncio.run(FileLedger(place / "ledger").publish(foreign))
    hub = start_hub(gating=False, anchor=FileLedger(place / "ledger"))
    until(lambda: signs(hub), "the hub signs")


def test_a_ledger_returns_each_root_once(tmp_path: Path, start_hub: StartHub) -> None:
    anchored(start_hub, tmp_path / "ledger")

    async def story() -> None:
        ledger = FileLedger(tmp_path / "ledger")
        assert len(await ledger.recall(HUB_ID) or ()) == 2
        assert await ledger.recall(HUB_ID) == []
        root = (await FileLedger(tmp_path / "ledger").recall(HUB_ID) or [])[0]
        later = dataclasses.replace(root, upto_seq=StreamSeq(7))
        await FileLedger(tmp_path / "ledger").publish(later)
        assert await ledger.recall(HUB_ID) == [later]
        (tmp_path / "ledger").write_bytes(b"")
        with pytest.raises(AnchorError, match="the file was truncated"):
            await ledger.recall(HUB_ID)
        assert await FileLedger(tmp_path / "nothing").recall(HUB_ID) is None

    asyncio.run(story())


def test_a_ledger_is_no_memory_if_the_configuration_says_so(start_hub: StartHub, place: Path) -> None:
    hub = start_hub(gating=False, anchor=FileLedger(place / "ledger"), hub_log__memories={"anchors": False})
    assert hub.status().memories is None
    assert signs(hub)


def test_an_anchoring_stream_to_which_anybody_may_write_is_no_memory(
    start_hub: StartHub, place: Path
) -> None:
    anchoring = start_hub("anchoring", gating=False)
    settings = dataclasses.replace(anchoring_in(anchoring, place), token=None)
    assert start_hub("data", anchor=hub_anchor(settings)).status().memories is None
