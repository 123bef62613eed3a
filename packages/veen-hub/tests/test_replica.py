"""A replica: the same log, readable under the primary's identity; it signs nothing (RESOLUTIONS P9)."""

from __future__ import annotations

import errno
import http.client
import http.server
import shutil
import signal
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from veen_core import cbor
from veen_core.api import ProofRequest, ProofResponse, ReceiptRequest, ReceiptResponse
from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.handover import Handover, verify_handover
from veen_core.hashing import H
from veen_core.hub_identity import verify_receipt
from veen_core.ids import HubId, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.proof import verify_inclusion
from veen_core.status import HandoverRequest
from veen_hub.client import FileStateStore, Unreachable, connect
from veen_hub.replica import follower
from veen_hub.replica.items import Hello, encode_item
from veen_storage import rotate

from .certificates import Certificates
from .client_fixtures import person, run, serving
from .conftest import StartHub, StartProcess
from .people import Writer, ciphertext
from .replicas import (
    assert_same_log,
    assert_sound,
    catch_up,
    files_of,
    hand_over,
    head,
    published_size,
    ready,
    refusal_to_start,
    send,
)
from .serving import HubProcess, make_directory, until

SUCCESSOR = HubId(H(b"successor"))


@pytest.fixture
def primary(start_process: StartProcess) -> HubProcess:
    return start_process("primary", "--open")


def start_replica(tmp_path: Path, of: HubProcess, name: str = "replica", *flags: str) -> HubProcess:
    return HubProcess(tmp_path / name, f"--replica-of={of.url}", *flags)


@pytest.fixture
def alice(primary: HubProcess) -> Writer:
    return Writer("alice", primary.status().identity.hub_id)


def test_a_replica_copies_a_hub_follows_it_and_ends_with_the_same_bytes(
    primary: HubProcess, alice: Writer, tmp_path: Path
) -> None:
    bob = Writer("bob", primary.status().identity.hub_id, to="invoices")
    for _ in range(5):
        send(primary, alice, 100)
    replica = start_replica(tmp_path, primary)
    try:
        send(primary, bob, 30)
        content = b"an attachment"
        put = primary.call(
            "PUT", f"/v1/attachment/{H(content).hex()}", content, alice.attachment_headers(content)
        )
        assert put.status == 200
        send(primary, alice, 100)
        catch_up(primary, replica, alice.label, bob.label)
        until(
            lambda: replica.get(f"/v1/attachment/{H(content).hex()}").body == content, "it has the attachment"
        )
        until(lambda: published_size(replica) == published_size(primary) > 0, "it serves the hub checkpoint")
        assert primary.stop() == 0
        assert replica.stop() == 0
    finally:
        replica.kill()
    assert_same_log(tmp_path / "primary", tmp_path / "replica")
    assert not (tmp_path / "replica" / "keys").exists()
    assert_sound(tmp_path / "replica")


def test_reads_and_proofs_of_a_replica_verify_under_the_primary_and_writes_are_refused(
    primary: HubProcess, alice: Writer, tmp_path: Path
) -> None:
    receipts = send(primary, alice, 20)
    replica = start_replica(tmp_path, primary)
    try:
        until(lambda: ready(replica) is None, "the replica is ready")
        catch_up(primary, replica, alice.label)
        identity = replica.status().identity
        assert identity == primary.status().identity
        assert replica.status().replica_of == primary.url
        asked = ReceiptRequest(label=alice.label, stream_seq=StreamSeq(7))
        found = replica.ask("/v1/receipt", asked, ReceiptResponse).receipt
        assert found == receipts[6]
        verify_receipt(identity, found)
        proof = replica.ask(
            "/v1/proof", ProofRequest(label=alice.label, stream_seq=StreamSeq(7)), ProofResponse
        ).mmr_proof
        verify_inclusion(proof, found.mmr_root, found.stream_seq, found.leaf_hash)
        refused = replica.submit(alice.next())
        assert (refused.status, refused.error.code, refused.detail) == (403, "E.AUTH", "NOT_PRIMARY")
        assert primary.url in refused.error.message
        token = replica.post("/tooling/authorize", alice.token())
        assert token.error.code == "E.AUTH" or token.detail == "CAP_ISSUER"
        content = b"x"
        put = replica.call(
            "PUT", f"/v1/attachment/{H(content).hex()}", content, alice.attachment_headers(content)
        )
        assert put.detail == "NOT_PRIMARY"
        assert replica.admin("/tooling/checkpoint").detail == "NOT_PRIMARY"
    finally:
        replica.kill()


def test_a_restarted_replica_resumes_without_reading_history_again(
    primary: HubProcess, alice: Writer, tmp_path: Path
) -> None:
    send(primary, alice, 50)
    replica = start_replica(tmp_path, primary)
    catch_up(primary, replica, alice.label)
    assert replica.stop() == 0
    send(primary, alice, 50)
    replica = start_replica(tmp_path, primary)
    try:
        catch_up(primary, replica, alice.label)
        copied = [line for line in replica.lines if line["event"] == "replica_copied"]
        assert len(copied) == 1, "it was copied once, at the first start"
        assert replica.metric("veen_replica_batches_total") <= 5
    finally:
        replica.kill()


def test_a_replica_starts_and_serves_while_its_primary_is_down(
    primary: HubProcess, alice: Writer, tmp_path: Path
) -> None:
    send(primary, alice, 5)
    replica = start_replica(tmp_path, primary)
    catch_up(primary, replica, alice.label)
    assert replica.stop() == 0
    assert primary.stop() == 0
    replica = start_replica(tmp_path, primary)
    try:
        assert head(replica, alice.label) == 5
        assert "has not been heard of" in str(ready(replica))
    finally:
        replica.kill()


def test_a_directory_with_the_hubs_key_is_no_replica(primary: HubProcess, tmp_path: Path) -> None:
    make_directory(tmp_path / "twin")
    assert "must not be able to sign" in refusal_to_start(tmp_path / "twin", f"--replica-of={primary.url}")


def test_a_replica_of_another_hub_than_the_pinned_one_does_not_start(
    primary: HubProcess, tmp_path: Path
) -> None:
    config = tmp_path / "hub.yaml"
    config.write_text(f"replica_pinned: '{'00' * 32}'\n")
    said = refusal_to_start(tmp_path / "replica", f"--replica-of={primary.url}", f"--config={config}")
    assert "replica_pinned is 0000" in said
    assert not (tmp_path / "replica" / "VERSION").exists()


def test_a_primary_restored_from_an_old_copy_stops_its_replica_with_evidence(
    start_process: StartProcess, tmp_path: Path
) -> None:
    """The old copy signs other messages in the places that the replica has."""
    primary = start_process("primary", "--open")
    alice = Writer("alice", primary.status().identity.hub_id)
    send(primary, alice, 3)
    assert primary.stop() == 0
    shutil.copytree(tmp_path / "primary", tmp_path / "old")
    primary = start_process("primary", "--open")
    send(primary, alice, 4)
    replica = start_replica(tmp_path, primary)
    catch_up(primary, replica, alice.label)
    assert replica.stop() == 0
    assert primary.stop() == 0
    restored = start_process("old", "--open")
    alice.seq = 3
    for _ in range(2):
        restored.accept(alice.next(ciphertext=ciphertext(b"other")))
    replica = start_replica(tmp_path, restored)
    try:
        until(lambda: any(line["event"] == "primary_diverged" for line in replica.lines), "it is noticed")
        (event,) = [line for line in replica.lines if line["event"] == "primary_diverged"]
        assert any("equivocation-" in path for path in event["evidence"])
        assert head(replica, alice.label) == 7, "what it has stays readable"
        assert "another history" in str(ready(replica))
        evidence = next(path for path in event["evidence"] if "equivocation-" in path)
        verify_evidence(Equivocation.decode(Path(evidence).read_bytes()), replica.status().identity)
    finally:
        replica.kill()


def test_a_replica_follows_key_rotations_and_refuses_an_identity_record_from_before(
    start_process: StartProcess, tmp_path: Path
) -> None:
    primary = start_process("primary", "--open")
    alice = Writer("alice", primary.status().identity.hub_id)
    send(primary, alice, 3)
    assert primary.stop() == 0
    shutil.copytree(tmp_path / "primary", tmp_path / "old")
    rotate(tmp_path / "primary", SigningKey(SigningSeed(H(b"new key"))), UnixTime(int(time.time()) + 1), 600)
    primary = start_process("primary", "--open")
    send(primary, alice, 3)
    replica = start_replica(tmp_path, primary)
    catch_up(primary, replica, alice.label)
    assert len(replica.status().identity.hub_keys) == 2
    assert replica.stop() == 0
    assert primary.stop() == 0
    restored = start_process("old", "--open")
    replica = start_replica(tmp_path, restored)
    try:
        until(lambda: "another history" in str(ready(replica)), "it is noticed")
        assert head(replica, alice.label) == 6, "what it has stays readable"
    finally:
        replica.kill()


def test_a_replica_needs_no_setting_for_the_origin_of_the_hub_log(
    start_process: StartProcess, tmp_path: Path
) -> None:
    config = tmp_path / "hub.yaml"
    config.write_text("hub_log: {origin: example.com/primary}\n")
    primary = start_process("primary", "--open", f"--config={config}")
    alice = Writer("alice", primary.status().identity.hub_id)
    send(primary, alice, 3)
    replica = start_replica(tmp_path, primary)
    try:
        until(lambda: published_size(replica) == 1, "the replica serves the hub checkpoint")
        hand_over(primary, SUCCESSOR)
        until(lambda: replica.status().handover is not None, "the replica has the handover")
        assert replica.get("/log/checkpoint").body.startswith(b"example.com/primary\n")
        assert replica.status().hub_log_origin == "example.com/primary"
    finally:
        replica.kill()


def test_a_hub_that_requires_a_certificate_of_readers_requires_it_of_replicas(tmp_path: Path) -> None:
    """COMP0.3: the whole log must not leave by another door."""
    made = Certificates(tmp_path)
    (cert, key), (own, own_key) = made.hub, made.client
    tls = f"tls: {{cert: {cert}, key: {key}, client_ca: {made.authority}, client_certificate: reading}}\n"
    with serving(tmp_path / "primary", config=tls) as hub:
        url = hub.url.replace("http://", "https://")
        context = ssl.create_default_context(cafile=made.authority)
        for path in ("/v1/replica/snapshot", "/v1/replica/journal?after=0"):
            connection = http.client.HTTPSConnection("127.0.0.1", hub.port, context=context, timeout=20)
            connection.request("GET", path)
            answer = connection.getresponse()
            assert (answer.status, b"client certificate" in answer.read()) == (401, True), path
            connection.close()
        config = tmp_path / "replica.yaml"
        config.write_text(f"replica_ca: {made.authority}\n")
        said = refusal_to_start(tmp_path / "replica", f"--replica-of={url}", f"--config={config}")
        assert "requires a client certificate" in said
        config.write_text(f"replica_ca: {made.authority}\nreplica_cert: {own}\nreplica_key: {own_key}\n")
        replica = HubProcess(tmp_path / "replica", f"--replica-of={url}", f"--config={config}")
        try:
            until(lambda: ready(replica) is None, "the replica follows")
        finally:
            replica.kill()


def test_a_replica_that_was_away_too_long_says_what_to_do(
    start_process: StartProcess, tmp_path: Path
) -> None:
    config = tmp_path / "hub.yaml"
    config.write_text("replication: {keep_bytes: 0}\n")
    primary = start_process("primary", "--open", f"--config={config}")
    alice = Writer("alice", primary.status().identity.hub_id)
    send(primary, alice, 3)
    start_replica(tmp_path, primary).stop()
    send(primary, alice, 3)
    assert primary.stop() == 0
    primary = start_process("primary", "--open", f"--config={config}")
    replica = start_replica(tmp_path, primary)
    try:
        until(lambda: "no longer kept" in str(ready(replica)), "it says so")
        assert "remove the data directory" in str(ready(replica))
    finally:
        replica.kill()


def test_a_client_does_not_accuse_a_replica_that_is_behind(
    start_process: StartProcess, tmp_path: Path
) -> None:
    """The primary comes back at another address, which the replica does not know."""
    primary = start_process("primary", "--open")
    hub_id = primary.status().identity.hub_id
    state = FileStateStore(tmp_path / "state")

    async def send_one(url: str) -> None:
        async with connect(url, person("alice"), trust=hub_id, state=state) as hub:
            await hub.stream("orders").send("an order")

    async def read_all(url: str) -> int:
        async with connect(url, person("alice"), trust=hub_id, state=state) as hub:
            return len([message async for message in hub.stream("orders").read()])

    run(send_one(primary.url))
    replica = start_replica(tmp_path, primary)
    try:
        until(lambda: ready(replica) is None, "the replica is ready")
        assert run(read_all(replica.url)) == 1
        assert primary.stop() == 0
        with socket.socket() as old_address:  # taken, so that the primary comes back at another one
            old_address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            old_address.bind(("127.0.0.1", primary.port))
            primary = start_process("primary", "--open")
            run(send_one(primary.url))
            with pytest.raises(Unreachable, match="does not have entry 2"):
                run(read_all(replica.url))
        assert not list((tmp_path / "state").rglob("evidence/*"))
    finally:
        replica.kill()


# --- handover


def test_a_handover_closes_the_log_and_names_the_successor(
    primary: HubProcess, alice: Writer, tmp_path: Path
) -> None:
    send(primary, alice, 10)
    replica = start_replica(tmp_path, primary)
    try:
        record = Handover.decode(hand_over(primary, SUCCESSOR, "http://127.0.0.1:1"))
        signed = verify_handover(record, primary.status().identity)
        assert (record.new_hub, record.url) == (SUCCESSOR, "http://127.0.0.1:1")
        refused = primary.submit(alice.next())
        assert (refused.error.code, refused.detail) == ("E.AUTH", "NOT_PRIMARY")
        assert SUCCESSOR.hex() in refused.error.message
        assert "http://127.0.0.1:1" in refused.error.message
        assert primary.status().handover == record
        until(lambda: replica.status().handover == record, "the replica has the handover")
        assert replica.submit(alice.next()).detail == "NOT_PRIMARY"
        assert primary.admin("/tooling/checkpoint").detail == "NOT_PRIMARY"
        until(lambda: published_size(primary) == signed.head.size, "the last hub checkpoint is served")
    finally:
        replica.stop()
    assert (tmp_path / "replica" / "handover.cbor").read_bytes() == record.encode()


def test_a_handed_over_hub_stays_so_after_a_restart_and_gives_the_same_record(
    start_process: StartProcess, tmp_path: Path
) -> None:
    primary = start_process("primary", "--open")
    alice = Writer("alice", primary.status().identity.hub_id)
    send(primary, alice, 3)
    record = hand_over(primary, SUCCESSOR)
    assert hand_over(primary, SUCCESSOR, later=1) == record
    other = primary.admin("/tooling/handover", b"\xa3\x01\x01\x02\x58\x20" + bytes(32) + b"\x03\x60")
    assert other.error.code == "E.CONFLICT"
    before = files_of(tmp_path / "primary", "log", "hublog")
    primary.signal(signal.SIGKILL)
    primary.wait()
    primary = start_process("primary", "--open")
    assert primary.submit(alice.next()).detail == "NOT_PRIMARY"
    assert primary.status().handover == Handover.decode(record)
    assert head(primary, alice.label) == 3
    assert primary.stop() == 0
    after = files_of(tmp_path / "primary", "log", "hublog")
    assert {name: after[name] for name in before} == before or before == {}


def test_only_the_admin_can_hand_a_hub_over(primary: HubProcess, alice: Writer) -> None:
    send(primary, alice, 1)
    assert primary.post("/tooling/handover", b"").error.code == "E.UNAUTHORIZED"
    assert primary.submit(alice.next()).status == 200


def test_an_empty_hub_has_nothing_to_hand_over_and_stays_primary(primary: HubProcess, alice: Writer) -> None:
    request = b"\xa3\x01\x01\x02\x58\x20" + bytes(SUCCESSOR) + b"\x03\x60"
    assert primary.admin("/tooling/handover", request).error.code == "E.NOT_FOUND"
    assert primary.submit(alice.next()).status == 200


def test_a_handover_whose_record_may_be_durable_keeps_the_hub_closed(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write happened and failed: after a restart the hub is handed over, so it accepts nothing now."""
    hub = start_hub(gating=False)
    writer = Writer("alice", hub.hub_id)
    send(hub, writer, 2)
    record = hub.store.record_handover

    def write_and_fail(made: Handover) -> None:
        record(made)
        raise OSError(errno.EIO, "the folder could not be synced")

    monkeypatch.setattr(hub.store, "record_handover", write_and_fail)
    request = HandoverRequest(new_hub=SUCCESSOR, url="").encode()
    assert hub.admin("/tooling/handover", request).status >= 500
    assert hub.submit(writer.next()).detail == "NOT_PRIMARY"


def test_a_handover_that_wrote_nothing_leaves_the_hub_primary(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = start_hub(gating=False)
    writer = Writer("alice", hub.hub_id)
    send(hub, writer, 2)

    def fail(_made: Handover) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(hub.store, "record_handover", fail)
    request = HandoverRequest(new_hub=SUCCESSOR, url="").encode()
    assert hub.admin("/tooling/handover", request).status >= 500
    assert send(hub, writer, 1)[0].stream_seq == 3


class HelloThenGarbage(http.server.BaseHTTPRequestHandler):
    """Passes requests on to a primary, but sends garbage after the first item of its journal."""

    primary: HubProcess
    asked: list[str]

    def do_GET(self) -> None:
        if not self.path.startswith("/v1/replica/journal"):
            answer = self.primary.get(self.path)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["content-type"])
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            return
        self.asked.append(self.path)
        status = self.primary.status()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(encode_item(Hello(status.identity, status.identity_sig)))
        self.wfile.write(cbor.encode(["nonsense", 1]))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_primary_that_sends_garbage_after_its_hello_does_not_keep_its_replica_ready(
    start_hub: StartHub, primary: HubProcess, alice: Writer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(primary, alice, 5)
    start_replica(place, primary).stop()
    monkeypatch.setattr(follower, "STALE_SEC", 1.0)
    monkeypatch.setattr(follower, "MAX_RETRY_SEC", 0.2)
    asked: list[str] = []
    handler = type("Handler", (HelloThenGarbage,), {"primary": primary, "asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            replica = start_hub("replica", replica_of=f"http://127.0.0.1:{server.server_port}")
            until(lambda: "has not been heard of" in str(ready(replica)), "it is noticed")
            seen = len(asked)
            until(lambda: len(asked) > seen + 5, "the replica has connected again")
            assert "has not been heard of" in str(ready(replica)), "a hello alone does not count"
        finally:
            server.shutdown()
            serving.join()
