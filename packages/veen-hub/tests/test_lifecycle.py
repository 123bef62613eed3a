"""Start and stop of a hub: drain on a signal, key rotation, TLS."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from veen_core import hub_identity
from veen_core.api import ReceiptRequest, ReceiptResponse, StreamRequest, SubmitResponse
from veen_core.checkpoint import verify_witnesses
from veen_core.ids import HubPk, StreamSeq, UnixTime, VerifyKey
from veen_core.receipt import Receipt, verify_receipt
from veen_core.status import CheckpointsResponse, LabelRequest
from veen_hub.http import bounded_listener
from veen_hub.server import SHUTDOWN_SEC
from veen_storage import rotate

from .certificates import Certificates
from .conftest import StartHub, StartProcess
from .following import Follower
from .people import BORN, HUB_KEY, Writer, envelope, signing_key
from .serving import PATIENCE, HubProcess, RunningHub, SetClock, make_directory, request, until
from .test_failures import Gate


def keep_writing(hub: HubProcess, writer: Writer, acknowledged: list[Receipt], refused: list[int]) -> None:
    """Until the hub takes no more."""
    while True:
        try:
            answer = hub.submit(writer.next())
        except OSError:
            return
        if answer.status != 200:
            refused.append(answer.status)
            return
        acknowledged.append(answer.read(SubmitResponse).receipt)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_drains_the_hub(start_process: StartProcess, number: signal.Signals) -> None:
    hub = start_process("data", "--open")
    hub_id = hub.status().identity.hub_id
    writers = [Writer(f"writer {n}", hub_id) for n in range(6)]
    acknowledged: list[Receipt] = []
    refused: list[int] = []
    with ThreadPoolExecutor(7) as pool, Follower(hub.port, writers[0].label) as follower:
        writing = [pool.submit(keep_writing, hub, writer, acknowledged, refused) for writer in writers]
        following = pool.submit(lambda: [item[1] for item in follower.each(10**9)])
        until(lambda: len(acknowledged) > 50, "the hub is at work")
        started = time.monotonic()
        hub.signal(number)
        assert hub.wait() == 0
        assert time.monotonic() - started < SHUTDOWN_SEC
        for job in writing:
            job.result(PATIENCE)
        seen = following.result(PATIENCE)  # the stream has ended, and properly: no error
    assert set(refused) <= {503}
    assert seen == list(range(1, len(seen) + 1))
    told = [line["event"] for line in hub.lines if line["event"] in {"draining", "stopped"}]
    assert told == ["draining", "stopped"]

    again = start_process("data", "--open")
    assert len(acknowledged) > 50
    assert len(seen) >= len(acknowledged)
    for receipt in acknowledged:
        asked = ReceiptRequest(label=receipt.label, stream_seq=receipt.stream_seq)
        assert again.ask("/v1/receipt", asked, ReceiptResponse).receipt == receipt


def test_a_submit_that_is_under_way_is_answered(start_hub: StartHub) -> None:
    gate = Gate()
    hub = start_hub(policy=gate)
    alice = hub.writer()
    with ThreadPoolExecutor(2) as pool:
        submit = pool.submit(hub.submit, alice.next())
        assert gate.reached.wait(PATIENCE)
        stopping = pool.submit(hub.stop)
        until(hub.hub.stopping.is_set, "the hub is stopping")
        gate.open.set()
        assert submit.result(PATIENCE).status == 200
        stopping.result(PATIENCE)


def test_a_half_sent_request_does_not_keep_the_hub_from_stopping(start_process: StartProcess) -> None:
    hub = start_process("data", "--open")
    with (
        socket.create_connection(("127.0.0.1", hub.port)) as half,
        socket.create_connection(("127.0.0.1", hub.port)),
    ):
        half.sendall(b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nContent-Length: 100\r\n\r\nabc")
        assert hub.get("/healthz").status == 200
        started = time.monotonic()
        assert hub.stop() == 0
        assert time.monotonic() - started < SHUTDOWN_SEC
        assert half.recv(64).startswith(b"HTTP/1.1 503")


def test_an_open_hub_logs_at_its_start_that_it_is_open(start_process: StartProcess) -> None:
    """H20."""
    hub = start_process("data", "--open")
    hub.stop()
    (line,) = [line for line in hub.lines if line["event"] == "gating_off"]
    assert line["level"] == "warn"
    gated = start_process("data")
    assert gated.status().gating
    gated.stop()
    assert [line["event"] for line in gated.lines[-4:]] == ["listening", "no_memory", "draining", "stopped"]


def test_the_listening_line_is_one_write_even_if_unbuffered(tmp_path: Path) -> None:
    """With its log in the same file, a line of that between address and line end spoilt the address."""
    make_directory(tmp_path / "data")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # a datagram is a write
    ours.settimeout(PATIENCE)
    command = [sys.executable, "-m", "veen_hub.main", f"--data-dir={tmp_path / 'data'}", "--port=0", "--open"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        ours,
        subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process,
        theirs,
    ):
        said = ours.recv(1_000)
        process.terminate()
    assert re.fullmatch(
        rb"veen-hub listening on http://127\.0\.0\.1:\d+, probes on http://127\.0\.0\.1:\d+\n", said
    )


def test_a_quiet_hub_writes_log_lines_only(tmp_path: Path) -> None:
    """spec-4 §10.3: the log of a container has structured lines, from the start to the error that ends it."""
    make_directory(tmp_path / "data")
    command = [sys.executable, "-m", "veen_hub.main", f"--data-dir={tmp_path / 'data'}", "--quiet"]
    with subprocess.Popen([*command, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
        assert first.stdout is not None
        (listening,) = [json.loads(first.stdout.readline())]
        taken = f"--port={urlsplit(listening['url']).port}"
        second = subprocess.run(
            [*command, taken], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        first.terminate()
        rest = [json.loads(line) for line in first.stdout]
    assert [listening["event"], rest[-1]["event"]] == ["listening", "stopped"]
    assert second.returncode == 4
    assert second.stdout == ""
    (failed,) = [json.loads(line) for line in second.stderr.splitlines()]
    assert {"ts", "level", "component", "role", "event", "error"} <= set(failed)
    assert (failed["level"], failed["event"]) == ("error", "failed")
    assert "in use" in failed["error"]


def test_a_hub_stops_by_itself_only_once(hub: RunningHub) -> None:
    hub.stop()
    hub.stop()
    with pytest.raises(ConnectionRefusedError):
        hub.get("/healthz")


# --- keys


def test_after_a_rotation_old_receipts_verify_and_both_keys_witness_checkpoints(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(clock=clock)
    alice = hub.writer()
    old = hub.accept(alice.next())
    before = hub.status()
    hub.stop()
    new_key, valid_from, window = signing_key("hub/1"), UnixTime(BORN + 100), 1_000
    rotate(hub.root, new_key, valid_from, window)

    clock.time = BORN + 50
    hub = start_hub(clock=clock)
    assert hub.hub_id == before.identity.hub_id
    not_yet = hub.accept(alice.next())
    verify_receipt(not_yet, HubPk(HUB_KEY.public))

    clock.time = BORN + 200
    new = hub.accept(alice.next())
    verify_receipt(new, HubPk(new_key.public))
    status = hub.status()
    hub_identity.verify_successor(before.identity, status.identity, status.identity_sig)
    for receipt in (old, not_yet, new):
        hub_identity.verify_receipt(status.identity, receipt)
    asked = LabelRequest(label=alice.label).encode()
    (made,) = hub.admin("/tooling/checkpoint", asked).read(CheckpointsResponse).checkpoints
    hub_identity.verify_checkpoint(status.identity, made, hub.profile.epoch_sec)
    verify_witnesses(made, [VerifyKey(HUB_KEY.public), VerifyKey(new_key.public)])

    clock.time = BORN + 100 + window + 1
    hub.accept(alice.next())
    (later,) = hub.admin("/tooling/checkpoint", asked).read(CheckpointsResponse).checkpoints
    assert later.witness_sigs is None
    question = ReceiptRequest(label=alice.label, stream_seq=StreamSeq(1))
    assert hub.ask("/v1/receipt", question, ReceiptResponse).receipt == old


# --- TLS


@pytest.fixture
def tls_hub(start_hub: StartHub, certificates: Certificates) -> RunningHub:
    cert, key = certificates.hub
    return start_hub(tls={"cert": str(cert), "key": str(key)})


def context_for(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates.authority))


def test_tls_is_spoken_and_everything_works_over_it(tls_hub: RunningHub, certificates: Certificates) -> None:
    assert tls_hub.url.startswith("https://")
    context = context_for(certificates)
    assert request(tls_hub.port, "GET", "/v1/status", context=context).status == 200
    with (
        socket.create_connection(("127.0.0.1", tls_hub.port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        assert wrapped.version() == "TLSv1.3"
        assert wrapped.compression() is None


@pytest.mark.parametrize(
    ("ciphers", "spoken"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", True),
        ("ECDHE-ECDSA-AES128-SHA256", False),
        ("ECDHE-ECDSA-AES256-SHA", False),
    ],
)
def test_only_aead_suites_are_spoken_under_tls_1_2(
    tls_hub: RunningHub, certificates: Certificates, ciphers: str, spoken: bool
) -> None:
    context = context_for(certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    if spoken:
        assert request(tls_hub.port, "GET", "/healthz", context=context).status == 200
        return
    with pytest.raises((ssl.SSLError, ConnectionError)):
        request(tls_hub.port, "GET", "/healthz", context=context)


def test_a_tls_handshake_counts_as_a_connection_until_it_ends(
    start_hub: StartHub, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_listener, "HANDSHAKE_SEC", 2)
    cert, key = certificates.hub
    hub = start_hub(tls={"cert": str(cert), "key": str(key)}, listen__max_connections=3)
    context = context_for(certificates)

    def silent() -> socket.socket:
        return socket.create_connection(("127.0.0.1", hub.port), timeout=PATIENCE)

    with silent() as first, silent() as second, silent() as third, silent() as fourth:
        assert fourth.recv(1) == b""  # no room, also not for another handshake
        first.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")  # no handshake
        with contextlib.suppress(ConnectionError):
            while first.recv(100):
                pass
        second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        second.close()
        assert third.recv(1) == b""  # it took too long
    for _ in range(3):
        assert request(hub.port, "GET", "/v1/status", context=context).status == 200
    until(lambda: hub.server.connections == 0, "no place is taken any more")


def test_tls_1_1_is_refused(tls_hub: RunningHub, certificates: Certificates) -> None:
    context = context_for(certificates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        request(tls_hub.port, "GET", "/healthz", context=context)
    assert request(tls_hub.port, "GET", "/healthz", context=context_for(certificates)).status == 200


def test_plain_http_to_a_tls_port_gets_no_answer_and_affects_no_other_client(
    tls_hub: RunningHub, certificates: Certificates
) -> None:
    with pytest.raises((ConnectionError, OSError)):
        request(tls_hub.port, "GET", "/healthz", timeout=5)
    assert request(tls_hub.port, "GET", "/healthz", context=context_for(certificates)).status == 200


def test_a_client_certificate_is_required_if_configured(
    start_hub: StartHub, certificates: Certificates
) -> None:
    cert, key = certificates.hub
    hub = start_hub(tls={"cert": str(cert), "key": str(key), "client_ca": str(certificates.authority)})

    def healthz(pair: tuple[Path, Path] | None) -> int:
        context = context_for(certificates)
        if pair is not None:
            context.load_cert_chain(*pair)
        return request(hub.port, "GET", "/healthz", context=context).status

    assert healthz(certificates.client) == 200
    for pair in (None, certificates.stranger):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            healthz(pair)


def test_only_reading_may_require_a_client_certificate(
    start_hub: StartHub, certificates: Certificates
) -> None:
    """COMP0.3: a stranger reads neither entries nor checkpoints nor tokens, and may still submit."""
    cert, key = certificates.hub
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(certificates.authority)}
    hub = start_hub(gating=False, tls=tls | {"client_certificate": "reading"})
    alice = Writer("alice", hub.hub_id)
    stranger, reader = context_for(certificates), context_for(certificates)
    reader.load_cert_chain(*certificates.client)
    cbor = {"Content-Type": "application/cbor"}

    def submit(context: ssl.SSLContext) -> int:
        return request(hub.port, "POST", "/v1/submit", envelope(alice.next()), cbor, context=context).status

    assert (submit(stranger), submit(reader)) == (200, 200)
    page = StreamRequest(label=alice.label, from_seq=StreamSeq(1)).encode()
    calls: list[tuple[str, str, bytes | None]] = [
        ("POST", "/v1/stream", page),
        ("GET", f"/v1/stream/{alice.label.hex()}", None),
        ("GET", "/v1/checkpoint", None),
        ("GET", f"/v1/attachment/{'00' * 32}", None),
        ("GET", f"/tooling/cap/{'00' * 32}", None),
    ]
    for method, path, body in calls:
        answer = request(hub.port, method, path, body, cbor, context=stranger)
        assert (answer.status, answer.error.code) == (401, "E.UNAUTHORIZED"), path
    assert request(hub.port, "POST", "/v1/stream", page, cbor, context=reader).status == 200
    assert request(hub.port, "GET", "/v1/status", context=stranger).status == 200


def test_a_tls_hub_drains_too(
    start_process: StartProcess, certificates: Certificates, tmp_path: Path
) -> None:
    cert, key = certificates.hub
    config = tmp_path / "hub.yaml"
    config.write_text(f"gating: false\ntls:\n  cert: {cert}\n  key: {key}\n")
    hub = start_process("data", f"--config={config}")
    context = context_for(certificates)
    status = request(hub.port, "GET", "/healthz", context=context)
    assert status.status == 200
    held = threading.Event()

    def idle() -> None:
        with (
            socket.create_connection(("127.0.0.1", hub.port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
        ):
            held.set()
            wrapped.settimeout(PATIENCE)
            assert wrapped.recv(1) == b""

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(idle)
        assert held.wait(PATIENCE)
        assert hub.stop() == 0
        waiting.result(PATIENCE)
