"""A hub with several shards, as its clients and its operator see it: one hub."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core import cbor, hub_log
from veen_core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    ErrorEnvelope,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamRequest,
    StreamResponse,
    SubmitResponse,
)
from veen_core.cap import Rate
from veen_core.checkpoint import Checkpoint
from veen_core.entry import Entry
from veen_core.hashing import H
from veen_core.hub_identity import verify_receipt
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.status import AttachmentResponse, CapStatus, CheckpointsResponse, RetentionResponse
from veen_core.tlog.tree import leaf_hash, verify_inclusion
from veen_core.tlog.tree_head import parse_signed_head
from veen_hub.load import follower_fleet
from veen_hub.main import EXIT_CODES, main
from veen_hub.ops.config import HubConfig
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.shards import shard_runner
from veen_hub.shards.forwarding import PartClient
from veen_hub.shards.gate_copy import encode_gate
from veen_hub.shards.shard_runner import ShardRunner
from veen_storage import Files, LockedError, Store
from veen_storage.fsck import fsck
from veen_storage.shards.check import fsck_sharded
from veen_storage.shards.fence import raise_fence
from veen_storage.shards.reshard import log_digests, reshard
from veen_storage.shards.sharded_layout import ShardedLayout, owner_of

from .people import Writer, ciphertext, envelope
from .serving import CBOR_SEQ, JSON, PATIENCE, HubProcess, make_directory, until
from .sharded import (
    SHARDS,
    Load,
    ShardedHub,
    Start,
    check_receipts,
    new_directory,
    wait_for_head,
)

CONNECTIONS = 12
"""Connections of which each shard accepts at least one, nearly always."""


@pytest.fixture
def start(start_sharded: Start) -> Start:
    return start_sharded


@pytest.fixture(scope="module")
def shared() -> Iterator[ShardedHub]:
    """A running hub with two shards for the tests that do not stop it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="veen-hub-", dir=memory if os.access(memory, os.W_OK) else None
    ) as folder:
        root = Path(folder)
        hub = ShardedHub(new_directory(root))
        yield hub
        assert hub.stop() == 0
        report = fsck_sharded(hub.root, processes=1)
        assert report.ok, str(report)


def entries_of(hub: HubProcess, label: Label) -> StreamResponse:
    return hub.ask(
        "/v1/stream", StreamRequest(label=label, from_seq=StreamSeq(1), with_receipts=True), StreamResponse
    )


def test_a_long_page_is_the_same_bytes_whichever_shard_accepts_the_request(shared: ShardedHub) -> None:
    """Another shard than the owner passes it on in parts, as they arrive."""
    hub = shared
    for shard in range(SHARDS):
        writer = hub.writer_of(shard)
        for _ in range(8):
            hub.accept(writer.next(ciphertext=ciphertext(bytes(200_000))))
        asked = StreamRequest(label=writer.label, from_seq=StreamSeq(1), with_receipts=True)
        answers = [hub.post("/v1/stream", asked) for _ in range(CONNECTIONS)]
        assert {(answer.status, H(answer.body)) for answer in answers} == {(200, H(answers[0].body))}
        assert len(answers[0].body) > 1_600_000
        assert len(answers[0].read(StreamResponse).items) == 8


def test_followers_at_any_shard_get_the_same_bytes(shared: ShardedHub) -> None:
    hub = shared
    writer, entries = hub.writer_of(1), 10
    command = (sys.executable, follower_fleet.__file__)
    numbers = (str(hub.port), writer.label.hex(), "200", str(entries))
    with subprocess.Popen([*command, *numbers], stdout=subprocess.PIPE, text=True) as fleet:
        assert fleet.stdout is not None
        assert fleet.stdout.readline() == "ready\n"
        for _ in range(entries):
            hub.accept(writer.next())
        report = json.loads(fleet.stdout.read())
    assert (report["followers"], report["digests"]) == (200, 1)


def test_requests_about_any_label_are_answered_whichever_shard_accepts_them(shared: ShardedHub) -> None:
    hub = shared
    writers = [hub.writer_of(number % 2) for number in range(4)]
    assert {owner_of(writer.label, SHARDS) for writer in writers} == {0, 1}
    for writer in writers:
        for seq in (1, 2, 3):
            receipt = hub.accept(writer.next())
            assert receipt.stream_seq == seq
            verify_receipt(hub.status().identity, receipt)
    for writer in writers:
        for _ in range(4):  # connections reach one shard or the other
            page = entries_of(hub, writer.label)
            assert [item.stream_seq for item in page.items] == [1, 2, 3]
            found = hub.ask(
                "/v1/receipt", ReceiptRequest(label=writer.label, stream_seq=StreamSeq(2)), ReceiptResponse
            )
            assert found.receipt == page.items[1].receipt
            proof = hub.ask(
                "/v1/proof", ProofRequest(label=writer.label, stream_seq=StreamSeq(1)), ProofResponse
            )
            assert proof.mmr_proof is not None
            between = ConsistencyRequest(label=writer.label, from_seq=StreamSeq(1), to_seq=StreamSeq(3))
            assert hub.ask("/v1/consistency", between, ConsistencyResponse).mmr_consistency is not None
    as_json = hub.post(
        "/v1/receipt",
        ReceiptRequest(label=writers[0].label, stream_seq=StreamSeq(1)).to_json().encode(),
        kind=JSON,
    )
    assert as_json.read(ReceiptResponse).receipt.stream_seq == 1


def test_one_request_may_have_messages_of_all_shards_and_refusals_keep_their_places(
    shared: ShardedHub,
) -> None:
    hub = shared
    alice, bob = hub.writer_of(0), hub.writer_of(1)
    nobody = Writer("nobody", hub.hub_id, to="orders/0")
    for _ in range(4):
        wires = [alice.next(), bob.next(), nobody.message(1), b"\xff", alice.next(), bob.message(bob.seq)]
        answer = hub.post("/v1/submit", b"".join(envelope(w) for w in wires[:3] + wires[4:]), kind=CBOR_SEQ)
        items = list(cbor.split_sequence(answer.body))
        assert len(items) == 5
        receipts = [SubmitResponse.decode(items[at]).receipt for at in (0, 1, 3)]
        assert [receipt.label for receipt in receipts] == [alice.label, bob.label, alice.label]
        details = [ErrorEnvelope.decode(items[at]).detail for at in (2, 4)]
        assert [detail.detail_enum for detail in details if detail] == ["CAP_MISSING", "DUPLICATE"]
    for _ in range(4):  # the refusal of a single message has its status and code on either shard
        refused = hub.submit(bob.message(bob.seq))
        assert (refused.status, refused.detail) == (409, "DUPLICATE")
        assert hub.submit(b"\xff").status == 400


def test_a_token_is_known_to_every_shard_before_its_receipt(shared: ShardedHub) -> None:
    hub = shared
    writers = [Writer(f"w{n}", hub.hub_id, to=f"parcels/{n}") for n in range(8)]
    for writer in writers:
        answer = hub.authorize(writer.token())
        writer.auth_ref = answer.auth_ref
        verify_receipt(hub.status().identity, answer.receipt)
        hub.accept(writer.next())  # at once, wherever its label is
        assert hub.authorize(writer.token()).receipt == answer.receipt
        known = hub.get(f"/tooling/cap/{answer.auth_ref.hex()}").read(CapStatus)
        assert known.issued_at == answer.receipt.hub_ts
    control = hub.status().control_label
    newest = hub.ask("/v1/receipt", ReceiptRequest(label=control, stream_seq=StreamSeq(0)), ReceiptResponse)
    assert newest.receipt == answer.receipt
    foreign = Writer("eve", hub.hub_id)
    refused = hub.post("/tooling/authorize", foreign.token(issuer=foreign.key))
    assert refused.detail == "CAP_ISSUER"
    limited = hub.writer(20, rate=Rate(per_sec=1, burst=1))
    hub.accept(limited.next())
    assert hub.submit(limited.next()).status == 429


def test_a_token_waits_for_a_shard_that_is_being_restarted(start: Start) -> None:
    hub = start()
    hub.writer(0)
    late = hub.writer_of(1, gated=False)
    token = late.token()
    os.kill(hub.shard_pid(1), signal.SIGKILL)

    def is_authorized() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):  # it reached the process that ends
            return hub.post("/tooling/authorize", token).status == 200
        return False

    until(is_authorized, "the shard has the token")
    late.auth_ref = token.auth_ref
    assert hub.accept(late.next()).stream_seq == 1


def follow(hub: HubProcess, label: Label, count: int, found: list[Entry]) -> None:
    """Read a live stream until it has brought ``count`` items."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=PATIENCE)
    connection.request("GET", f"/v1/stream/{label.hex()}?from=1")
    response, data = connection.getresponse(), b""
    while len(found) < count:
        data += response.read1(65_536)
        with contextlib.suppress(Exception):
            found[:] = list(cbor.split_sequence(data))  # type: ignore[arg-type]  # only counted
    connection.close()


def test_live_streams_bring_entries_of_any_shard(shared: ShardedHub) -> None:
    hub = shared
    writers = [hub.writer_of(0), hub.writer_of(1)] * 2
    found: list[list[Entry]] = [[] for _ in writers]
    threads = [
        threading.Thread(target=follow, args=(hub, writer.label, 4, items))
        for writer, items in zip(writers, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for writer in writers[:2]:
        for _ in range(4):
            hub.accept(writer.next())
    for thread in threads:
        thread.join(PATIENCE)
    assert [len(items) for items in found] == [4] * 4


def test_one_hub_log_covers_the_labels_of_all_shards(shared: ShardedHub) -> None:
    hub = shared
    writers = [hub.writer_of(0), hub.writer_of(1)]
    for writer in writers:
        receipt = hub.accept(writer.next())
        made = wait_for_head(hub, writer.label, 1)
        signed = parse_signed_head(made.checkpoint)
        assert signed.head.origin == hub_log.origin_of(hub.hub_id)
        hub_log.verify_hub_checkpoint(hub.status().identity, signed)
        verify_inclusion(
            leaf_hash(made.head.encode()), made.index, signed.head.size, list(made.proof), signed.head.root
        )
        assert (made.head.mmr_root, made.head.hub_ts) == (receipt.mmr_root, receipt.hub_ts)
    published = parse_signed_head(hub.get("/log/checkpoint").body)
    tile = hub.get(f"/log/tile/entries/000.p/{published.head.size}")
    assert tile.status == 200
    with_heads = ShardedLayout(hub.root).joined.hub_log_entries.read_bytes()
    assert all(writer.label in with_heads for writer in writers)


def test_attachments_admin_requests_metrics_and_probes_are_those_of_one_hub(shared: ShardedHub) -> None:
    hub = shared
    writers = [hub.writer_of(0), hub.writer_of(1)]
    accepted = hub.metric("veen_submit_ok_total")
    for writer in writers:
        content = b"attached " + writer.label
        coid = H(content)
        for stored in (True, False):
            put = hub.call("PUT", f"/v1/attachment/{coid.hex()}", content, writer.attachment_headers(content))
            assert put.read(AttachmentResponse).stored is stored
        assert hub.get(f"/v1/attachment/{coid.hex()}").body == content
        stranger = Writer("stranger", hub.hub_id, to="orders/0", auth_ref=writer.auth_ref)
        refused = hub.call(
            "PUT", f"/v1/attachment/{coid.hex()}", content, stranger.attachment_headers(content)
        )
        assert refused.detail == "AUTH_REF"
        for _ in range(3):
            hub.accept(writer.next())
    made = hub.admin("/tooling/checkpoint").read(CheckpointsResponse).checkpoints
    assert {one.label_curr for one in made} >= {w.label for w in writers} | {hub.status().control_label}
    latest = hub.ask(
        "/v1/checkpoint", CheckpointRequest(label=writers[0].label, upto_seq=StreamSeq(0)), CheckpointResponse
    )
    assert latest.checkpoint in made
    listed = [one for one in listed_checkpoints(hub) if one in made]  # the others are older
    assert listed == sorted(made, key=lambda one: one.label_curr)
    assert hub.admin("/tooling/retention").read(RetentionResponse).chunks == 0
    unsigned = hub.post("/tooling/checkpoint", b"")
    assert unsigned.status == 401
    assert hub.metric("veen_submit_ok_total") == accepted + 6
    assert hub.metric("veen_attachments_total") == 2
    assert hub.metric("veen_ready") == 1
    assert hub.metric("veen_signing") == 1
    assert b"_created" not in hub.get("/metrics").body, "there is no one time at which all parts started"
    assert hub.get("/readyz").json == {"ok": True}
    assert hub.get("/healthz").json["ok"] is True
    assert hub.admin("/tooling/anchor").status == 404, "no anchor is configured"
    assert hub.get("/v1/replica/journal?after=0").status == 404, "a replica starts with a copy"


def listed_checkpoints(hub: HubProcess) -> list[Checkpoint]:
    """All checkpoints, page by page, in order of labels."""
    found: list[Checkpoint] = []
    query: str | None = "epoch_min=0"
    while query is not None:
        page = hub.get(f"/v1/checkpoint?{query}")
        assert page.status == 200, page.body
        found += map(Checkpoint.decode, cbor.split_sequence(page.body))
        query = page.headers.get("veen-next")
    return sorted(found, key=lambda one: one.label_curr)


def kill_under_load(hub: ShardedHub, loads: list[Load]) -> None:
    """Kill shard 1 while both shards accept messages, and wait until it serves again."""
    before = [len(load.receipts) for load in loads]
    until(
        lambda: all(len(load.receipts) > n + 5 for load, n in zip(loads, before, strict=True)), "both write"
    )
    victim = hub.shard_pid(1)
    os.kill(victim, signal.SIGKILL)
    other = len(loads[0].receipts)
    until(lambda: len(loads[0].receipts) > other + 3, "the other shard goes on")
    until(lambda: hub.shard_pid(1) != victim, "the shard is started again")


def test_a_shard_that_is_killed_is_restarted_alone_and_nothing_acknowledged_is_lost(start: Start) -> None:
    hub = start()
    loads = [Load(hub, hub.writer_of(0)), Load(hub, hub.writer_of(1))]
    for load in loads:
        load.start()
    others = hub.shard_pid(0)
    for _ in range(2):
        kill_under_load(hub, loads)
    until(lambda: hub.get("/readyz").status == 200, "the hub is ready again")
    check_receipts(hub, loads)
    assert hub.shard_pid(0) == others, "the other shard's process is the same"
    assert {status for load in loads for status in load.refused} <= {503}
    assert hub.stop() == 0
    report = fsck_sharded(hub.root, processes=1)
    assert report.ok, str(report)


async def a_silent_shard(place: Path) -> int:
    """Run a process whose unix socket accepts calls and answers none; return the code that it ended with."""

    left = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    client = PartClient(str(place / "shard-0"), "shard-0")
    runner = ShardRunner(
        0,
        ShardedLayout(place),
        HubConfig(data_dir=place),
        client,
        lambda: encode_gate(SigningGate(), has_ended=False),
        port=0,
        floor=lambda: UnixTime(0),
        check=lambda _number: asyncio.sleep(0),
        on_down=lambda _number: None,
        on_failure=lambda _why: None,
    )
    async with await asyncio.start_unix_server(accept, place / "shard-0"):
        runner._process = await asyncio.create_subprocess_exec("sleep", str(PATIENCE))
        await asyncio.wait_for(runner._follow_gate(), PATIENCE / 2)
        await client.close()
        await left.wait()
        return await runner._process.wait()


def test_a_shard_that_does_not_answer_is_killed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_runner, "SILENT_SEC", 0.2)
    assert asyncio.run(a_silent_shard(place)) == -signal.SIGKILL


def test_the_whole_hub_can_be_killed_under_load_and_started_again_at_once(start: Start, place: Path) -> None:
    hub = start(new_directory(place, "a name that is longer than the path of a unix socket may be " * 2))
    loads = [Load(hub, hub.writer_of(0)), Load(hub, hub.writer_of(1))]
    for load in loads:
        load.start()
    until(lambda: all(len(load.receipts) > 20 for load in loads), "both shards write")
    wait_for_head(hub, loads[0].receipts[0].label, 3)
    size = parse_signed_head(hub.get("/log/checkpoint").body).head.size
    shards = [hub.shard_pid(number) for number in range(SHARDS)]
    hub.kill()  # the coordinator alone
    before = [len(load.receipts) for load in loads]
    again = start(hub.root, port=hub.port)
    assert not any(map(is_running, shards)), "shards end with their coordinator"
    until(lambda: all(len(load.receipts) > n for load, n in zip(loads, before, strict=True)), "both go on")
    check_receipts(again, loads)
    wait_for_head(again, loads[1].receipts[-1].label, loads[1].receipts[-1].stream_seq)
    assert parse_signed_head(again.get("/log/checkpoint").body).head.size > size
    assert again.stop() == 0
    report = fsck_sharded(hub.root, processes=1)
    assert report.ok, str(report)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended may still wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_hub_ends_at_a_signal_while_a_shard_does_not_start(start: Start, place: Path) -> None:
    root = new_directory(place)
    sockets = ShardedLayout(root).sockets
    sockets.chmod(0o777)  # as a restored copy may be
    config = place / "hub.yaml"
    config.write_text(f"shards: {SHARDS}\n")
    with Store(ShardedLayout(root).part(1).root, keys_directory=root / "keys", part=True):
        hub = subprocess.Popen(
            [sys.executable, "-m", "veen_hub.main", f"--config={config}", f"--data-dir={root}", "--port=0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert hub.stderr is not None
        assert any(b"shard_serves" in line for line in hub.stderr), "the other shard serves"
        assert sockets.stat().st_mode & 0o777 == 0o700
        hub.terminate()
        hub.communicate(timeout=PATIENCE / 2)
        assert hub.returncode == 0
    again = start(root)
    assert again.accept(again.writer_of(1).next()).stream_seq == 1


def test_two_owners_of_a_directory_or_of_a_part_are_refused(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = start()
    config = hub.root.parent / "hub.yaml"
    assert main([f"--config={config}", f"--data-dir={hub.root}", "--port=0"]) == EXIT_CODES[LockedError]
    assert "is in use" in capsys.readouterr().err
    part = ShardedLayout(hub.root).part(0)
    with pytest.raises(LockedError):
        Store(part.root, part=True)
    writer = hub.writer_of(0)
    hub.accept(writer.next())
    first = hub.shard_pid(0)
    raise_fence(ShardedLayout(hub.root).fence(0), Files())  # as a second process's start would do
    refused = hub.submit(writer.message(2))
    assert refused.status == 503
    os.kill(first, signal.SIGKILL)
    until(lambda: hub.shard_pid(0) != first, "the shard is started with the next number")
    assert hub.accept(writer.message(2)).stream_seq == 2


def test_a_part_from_an_older_copy_is_not_started(start: Start, place: Path) -> None:
    part = ShardedLayout(new_directory(place)).part(1).root
    shutil.copytree(part, place / "old part")
    hub = start(place / "two")
    writer = hub.writer_of(1)
    hub.accept(writer.next())
    wait_for_head(hub, writer.label, 1)
    assert hub.stop() == 0
    shutil.rmtree(part)
    shutil.copytree(place / "old part", part)
    with pytest.raises(AssertionError, match="shard-1 lacks entries that the hub log has"):
        start(hub.root)
    assert not fsck_sharded(hub.root, processes=1).ok


def test_a_coordinator_from_an_older_copy_is_not_started(start: Start, place: Path) -> None:
    root = new_directory(place)
    shutil.copytree(root, place / "old")
    hub = start(root)
    for writer in (hub.writer_of(0), hub.writer_of(1)):
        hub.accept(writer.next())
        wait_for_head(hub, writer.label, 1)
    assert hub.stop() == 0
    for folder, lost in (("joined", "hub log"), ("parts/control", "control label")):
        shutil.rmtree(root / folder)
        shutil.copytree(place / "old" / folder, root / folder)
        with pytest.raises(AssertionError, match=f"has seen a longer {lost} than the coordinator has"):
            start(root)


def test_a_hub_from_an_older_copy_signs_nothing_in_any_shard(start: Start, place: Path) -> None:
    root, heads = new_directory(place), place / "volume" / "heads"
    heads.parent.mkdir()
    heads.touch()
    settings = f"hub_log: {{memories: {{heads_file: {heads}}}}}\n"
    shutil.copytree(root, place / "old")
    hub = start(root, settings=settings)
    writers = [hub.writer_of(0), hub.writer_of(1)]
    for writer in writers:
        hub.accept(writer.next())
        wait_for_head(hub, writer.label, 1)
    assert hub.stop() == 0
    again = start(place / "old", settings=settings)
    until(lambda: (again.status().not_signing or "").startswith("the hub is behind"), "the file has answered")
    for writer in writers:
        for _ in range(4):
            assert again.submit(writer.message(1)).status == 503
    assert again.get("/readyz").status == 503


def test_a_hub_is_moved_between_numbers_of_shards_and_goes_on(start: Start, place: Path) -> None:
    hub = start()
    writers = [hub.writer(number) for number in range(6)]
    for writer in writers:
        hub.accept(writer.next())
    assert hub.stop() == 0
    digests = log_digests(hub.root)
    reshard(hub.root, place / "three", 3)
    assert log_digests(place / "three") == digests
    three = start(place / "three", shards=3)
    for writer in writers:
        assert three.accept(writer.next()).stream_seq == 2
        wait_for_head(three, writer.label, 2)
    assert three.stop() == 0
    assert fsck_sharded(place / "three", processes=1).ok
    grown = log_digests(place / "three")
    assert all(is_growing(name) for name, _digest in digests.items() - grown.items())
    reshard(place / "three", place / "single", 1)
    assert log_digests(place / "single") == grown
    report = fsck(place / "single", processes=1)
    assert report.ok, str(report)
    single = HubProcess(place / "single")
    for writer in writers:
        assert single.accept(writer.next()).stream_seq == 3
    assert single.stop() == 0


def is_growing(name: str) -> bool:
    """Whether a file of the log is appended to or replaced."""
    return name.endswith(".open") or name.startswith("hublog/")


@pytest.mark.parametrize(
    "line",
    [
        "anchor: {backend: file, path: ledger}",
        "h3: {}",
        "nats: {servers: ['nats://127.0.0.1:1']}",
    ],
)
def test_what_shards_cannot_do_is_refused_at_the_start(
    line: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = place / "hub.yaml"
    config.write_text(f"shards: 2\n{line}\n")
    assert main([f"--config={config}", f"--data-dir={place}"]) == 1
    assert "not supported with more than one shard" in capsys.readouterr().err


def test_the_number_of_shards_is_that_of_the_directory(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_directory(place / "one")
    config = place / "hub.yaml"
    config.write_text("shards: 2\n")
    assert main([f"--config={config}", f"--data-dir={place / 'one'}"]) == 1
    assert "veen hub reshard" in capsys.readouterr().err
    reshard(place / "one", place / "two", 2)
    assert main([f"--data-dir={place / 'two'}", "--port=0"]) == 1
    assert "set `shards: 2`" in capsys.readouterr().err
    config.write_text("shards: 65\n")
    assert main([f"--config={config}", f"--data-dir={place / 'two'}"]) == 1
    assert "between 1 and 64" in capsys.readouterr().err
