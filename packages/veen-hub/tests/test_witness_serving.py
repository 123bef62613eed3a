"""A witness as a process: its folder, its settings, what it serves to monitors, its bounds and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from veen_core.errors import ConfigError
from veen_core.keys import SigningSeed
from veen_core.tlog.add_checkpoint import MAX_REQUEST_BYTES
from veen_core.tlog.note import (
    MAX_NOTE_BYTES,
    cosigned_at,
    parse_key,
    parse_note,
    parse_signatures,
    verified_signatures,
)
from veen_hub.http.bounded_connection import MAX_HEAD_BYTES
from veen_hub.witness.config import load
from veen_hub.witness.folder import WitnessFolder
from veen_hub.witness.key import WitnessKey
from veen_hub.witness.main import parse_address
from veen_hub.witness.state import WitnessState
from veen_hub.witness.witness import Witness
from veen_storage import DamageError, MismatchError

from .certificates import Certificates
from .independent_log import IndependentLog
from .serving import SetClock, request, until
from .witnessing import NAME, SEED, WitnessProcess, make_witness, verify_cosignature

LOG = IndependentLog.of("log.example/serving", 40)
QUIET = IndependentLog.of("log.example/quiet", 40)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WitnessProcess]:
    """A witness that has cosigned a checkpoint of one of its two logs."""
    root = tmp_path_factory.mktemp("serving") / "witness"
    make_witness(
        root, [LOG, QUIET], "listen: {max_connections: 12, request_timeout_sec: 2, slow_client_sec: 2}\n"
    )
    process = WitnessProcess(root)
    process.cosigned(LOG, 0, 5)
    yield process
    assert process.stop() == 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``veen-witness`` to its end."""
    command = [sys.executable, "-m", "veen_hub.witness.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# --- the folder


def test_init_makes_a_key_that_only_its_owner_can_read_and_prints_the_verifier_key(tmp_path: Path) -> None:
    made = run(f"--dir={tmp_path / 'w'}", f"--init={NAME}", f"--log={LOG.vkey}")
    assert made.returncode == 0, made.stderr
    key = parse_key(made.stdout.strip())
    assert (key.name, key.kind) == (NAME, 4)
    assert stat.S_IMODE((tmp_path / "w" / "witness.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "w").stat().st_mode) == 0o700
    again = run(f"--dir={tmp_path / 'w'}", f"--init={NAME}")
    assert again.returncode == 1
    assert "not overwritten; choose another folder" in again.stderr
    assert WitnessFolder(tmp_path / "w").load_key().verifier == key


def test_a_quiet_witness_writes_log_lines_only(tmp_path: Path) -> None:
    """spec-4 §10.3."""
    make_witness(tmp_path / "w", [LOG], "")
    command = [sys.executable, "-m", "veen_hub.witness.main", "--quiet", f"--dir={tmp_path / 'w'}"]
    with subprocess.Popen(
        [*command, "--listen=127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.terminate()
        events = [first["event"], *(json.loads(line)["event"] for line in process.stdout)]
    assert events == ["listening", "stopped"]
    failed = run("--quiet", f"--dir={tmp_path / 'none'}")
    assert failed.returncode == 1
    line = json.loads(failed.stderr)
    assert (line["component"], line["event"]) == ("witness", "failed")
    assert "is not the folder of a witness" in line["error"]


@pytest.mark.parametrize(
    ("name", "logs", "says"),
    [
        (f"{NAME} w", [], "without spaces"),
        (f"{NAME}+w", [], "without spaces"),
        ("", [], "without spaces"),
        (NAME, ["nonsense"], "copy the whole line"),
        (NAME, [f"{LOG.vkey[:-8]}AAAAAAA="], "copy the whole line"),
        (
            NAME,
            [WitnessKey.of(NAME, SEED).verifier.text],
            "not of a log; `veen hub keys --note` prints",
        ),
    ],
    ids=["a space", "a plus", "no name", "no key", "a mistyped key", "the key of a witness"],
)
def test_init_refuses_what_cannot_work(tmp_path: Path, name: str, logs: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        WitnessFolder(tmp_path / "w").create(name, SEED, logs)
    assert not (tmp_path / "w").exists()


def test_init_refuses_a_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        WitnessFolder(tmp_path).create(NAME, SEED, [])


def test_a_folder_that_is_no_witness_s_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="veen witness init"):
        WitnessFolder(tmp_path).load_key()


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG])
    (tmp_path / "w" / "witness.key").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        WitnessFolder(tmp_path / "w").load_key()


@pytest.mark.parametrize("content", ["", "nonsense\n", "PRIVATE+KEY+a+b+c\n"], ids=["empty", "text", "short"])
def test_a_damaged_key_is_refused(tmp_path: Path, content: str) -> None:
    make_witness(tmp_path / "w", [LOG])
    (tmp_path / "w" / "witness.key").write_text(content)
    with pytest.raises(ConfigError, match="is not a witness's key"):
        WitnessFolder(tmp_path / "w").load_key()


def test_a_witness_without_its_state_does_not_start(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG])
    for file in (tmp_path / "w" / "state").iterdir():
        file.unlink()
    refused = run(f"--dir={tmp_path / 'w'}")
    assert refused.returncode == 1
    assert "could cosign a second history" in refused.stderr
    assert not list((tmp_path / "w" / "state").iterdir()), "no empty state takes its place"


def test_a_state_is_not_used_with_another_key(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG])
    other = WitnessKey.of(NAME, SigningSeed(bytes(32))).verifier
    with pytest.raises(MismatchError, match="put back the key"):
        WitnessState(tmp_path / "w" / "state", other)


@pytest.mark.parametrize("damage", ["zeros", "cut"])
def test_a_damaged_state_is_not_replaced_by_an_empty_one(tmp_path: Path, damage: str) -> None:
    make_witness(tmp_path / "w", [LOG])
    file = tmp_path / "w" / "state" / "data.mdb"
    file.write_bytes(bytes(file.stat().st_size) if damage == "zeros" else file.read_bytes()[:4_096])
    with pytest.raises(DamageError, match="could cosign a second history"):
        WitnessState(tmp_path / "w" / "state", WitnessKey.of(NAME, SEED).verifier)


def test_a_second_process_is_refused(witness: WitnessProcess) -> None:
    refused = run(f"--dir={witness.root}", "--listen=127.0.0.1:0")
    assert refused.returncode == 1
    assert f"process {witness.process.pid}" in refused.stderr


# --- the settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("log: []", "log: unknown setting; did you mean logs? Known are logs"),
        ("logs: [{keys: []}]", "give its verifier keys"),
        ("logs: [{keys: [nonsense]}]", "logs[0].keys[0]: verifier key"),
        ("logs: [{origin: x}]", "logs[0].keys: missing"),
        (f"logs: [{{keys: ['{LOG.vkey}']}}, {{keys: ['{LOG.vkey}']}}]", "is listed twice"),
        (f"logs: [{{keys: ['{LOG.vkey}', '{QUIET.vkey}']}}]", "set origin"),
        ("listen: {port: 70000}", "listen.port: 70000 is not between 0 and 65535"),
        ("listen: {prefix: witness}", "must begin with /"),
        ("listen: {host: ''}", "listen.host: empty"),
        ("logs: [", "not YAML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: str, says: str) -> None:
    (tmp_path / "witness.yaml").write_text(settings)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "witness.yaml", {})
    assert str(tmp_path / "witness.yaml") in str(refused.value)
    assert says in str(refused.value)


def test_a_setting_that_cannot_be_used_ends_the_witness_before_it_listens(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [], "tls: {cert: /nowhere/cert.pem, key: /nowhere/key.pem}\n")
    refused = run(f"--dir={tmp_path / 'w'}", "--listen=127.0.0.1:0")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "tls.cert: /nowhere/cert.pem" in refused.stderr


@pytest.mark.parametrize("address", ["8090", ":8090", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"write it like 127\.0\.0\.1:8090"):
        parse_address(address)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert parse_address("[::1]:0") == {"host": "::1", "port": 0}


def test_a_port_in_use_is_named(witness: WitnessProcess, tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [])
    refused = run(f"--dir={tmp_path / 'w'}", f"--listen=127.0.0.1:{witness.port}")
    assert refused.returncode == 1
    assert "choose another port" in refused.stderr


def test_a_log_whose_keys_have_another_name_is_watched_by_its_origin(tmp_path: Path) -> None:
    log = IndependentLog("log.example/renamed", LOG.entries, name="keys.example/k1")
    make_witness(tmp_path / "w", [])
    (tmp_path / "w" / "witness.yaml").write_text(f"logs: [{{origin: {log.origin}, keys: ['{log.vkey}']}}]")
    witness = WitnessProcess(tmp_path / "w")
    witness.cosigned(log, 0, 3)
    assert witness.stop() == 0


def test_a_log_that_is_removed_from_the_settings_is_remembered_and_no_longer_cosigned(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG])
    witness = WitnessProcess(tmp_path / "w")
    witness.cosigned(LOG, 0, 3)
    witness.stop()
    (tmp_path / "w" / "witness.yaml").write_text("logs: []")
    witness = WitnessProcess(tmp_path / "w")
    assert witness.post(LOG.request(3, 5)).status == 404
    assert witness.logs()[LOG.origin]["watched"] is False
    assert witness.get(f"/{LOG.hash}/checkpoint").status == 200
    until(lambda: "no_logs" in [line["event"] for line in witness.lines], "it is logged")
    witness.stop()


# --- monitors


@pytest.mark.parametrize("path", ["/{}/checkpoint", "/checkpoint/{}"])
def test_the_newest_checkpoint_has_the_signatures_of_log_and_witness(
    witness: WitnessProcess, path: str
) -> None:
    answer = witness.get(path.format(LOG.hash))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    note = parse_note(answer.body)
    assert note.text == LOG.text(5)
    assert len(verified_signatures(note, [parse_key(LOG.vkey), parse_key(witness.vkey)])) == 2
    verify_cosignature(witness.vkey, note.signatures[-1].line, note.text)


@pytest.mark.parametrize("name", [QUIET.hash, "0" * 64, "xyz", "../witness.key"])
def test_a_log_without_a_cosigned_checkpoint_is_not_found(witness: WitnessProcess, name: str) -> None:
    assert witness.get(f"/{name}/checkpoint").status == 404


def test_the_list_of_logs_says_what_was_cosigned_and_when(witness: WitnessProcess) -> None:
    logs = witness.logs()
    assert logs[QUIET.origin] == {
        "origin": QUIET.origin,
        "hash": QUIET.hash,
        "watched": True,
        "size": None,
        "root": None,
        "cosigned_at": None,
        "contradictions": [],
    }
    assert (logs[LOG.origin]["hash"], logs[LOG.origin]["size"]) == (LOG.hash, 5)
    assert logs[LOG.origin]["root"] == LOG.root(5).hex()
    assert abs(logs[LOG.origin]["cosigned_at"] - time.time()) < 600
    assert witness.get("/logs").json["witness"] == witness.vkey


def test_health_and_metrics(witness: WitnessProcess) -> None:
    assert witness.get("/healthz").json == {"ok": True, "witness": witness.vkey}
    refused = witness.metric('veen_witness_requests_total{status="409"}')
    assert witness.post(LOG.request(1, 9)).status == 409
    assert witness.metric('veen_witness_requests_total{status="409"}') == refused + 1
    assert witness.metric('veen_witness_requests_total{status="200"}') >= 1
    assert 0 <= witness.metric(f'veen_witness_cosignature_age_seconds{{origin="{LOG.origin}"}}') < 600
    assert witness.metric(f'veen_witness_tree_size{{origin="{LOG.origin}"}}') == 5


# --- bounds


def test_other_routes_and_methods_are_refused_in_text(witness: WitnessProcess) -> None:
    for method, path, status in (("GET", "/add-checkpoint", 405), ("POST", "/logs", 405), ("GET", "/x", 404)):
        answer = request(witness.port, method, path)
        assert (answer.status, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(witness: WitnessProcess) -> None:
    with socket.create_connection(("127.0.0.1", witness.port)) as connection:
        head = f"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: {MAX_REQUEST_BYTES + 1}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413")
    chunks = (bytes(10_000) for _ in range(20))
    assert request(witness.port, "POST", "/add-checkpoint", chunks).status == 413


def test_a_head_that_is_too_long_is_refused(witness: WitnessProcess) -> None:
    with socket.create_connection(("127.0.0.1", witness.port)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + b"a: " + b"x" * 2 * MAX_HEAD_BYTES)
        assert b" 400 " in connection.recv(65_536)


def test_what_is_not_http_is_refused(witness: WitnessProcess) -> None:
    with socket.create_connection(("127.0.0.1", witness.port)) as connection:
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        answer = connection.recv(65_536)
        assert b" 400 " in answer
        assert b"nonsense" not in answer


def test_a_body_that_does_not_arrive_in_time_is_refused(witness: WitnessProcess) -> None:
    with socket.create_connection(("127.0.0.1", witness.port), timeout=30) as connection:
        connection.sendall(b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: 100\r\n\r\nold 0\n")
        started = time.monotonic()
        assert b"did not arrive within 2 s" in connection.recv(65_536)
        assert time.monotonic() - started > 1


def test_a_client_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG], "listen: {slow_client_sec: 2}\n")
    witness = WitnessProcess(tmp_path / "w")
    before = witness.open_files  # nobody is connected
    with socket.create_connection(("127.0.0.1", witness.port), timeout=60) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with contextlib.suppress(OSError):  # it may be dropped while we still send
            deaf.setblocking(False)
            deaf.send(b"GET /metrics HTTP/1.1\r\nHost: w\r\n\r\n" * 4_000)
        until(lambda: witness.open_files > before, "the connection is accepted")
        until(lambda: witness.open_files <= before, "the connection is dropped")
    assert witness.stop() == 0


def test_a_connection_beyond_the_limit_gets_an_answer(witness: WitnessProcess) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(socket.create_connection(("127.0.0.1", witness.port)))
        extra = stack.enter_context(socket.create_connection(("127.0.0.1", witness.port), timeout=30))
        answer = extra.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"too many connections" in answer
    until(lambda: _answers(witness), "the connections are gone")


def _answers(witness: WitnessProcess) -> bool:
    with contextlib.suppress(OSError):
        return witness.get("/healthz").status == 200
    return False


def test_a_connection_is_kept_for_many_requests(witness: WitnessProcess) -> None:
    with contextlib.closing(HTTPConnection("127.0.0.1", witness.port, timeout=30)) as connection:
        connection.connect()
        port = connection.sock.getsockname()[1]
        for _ in range(5):
            connection.request("POST", "/add-checkpoint", LOG.request(1, 9).encode())
            assert connection.getresponse().read() == b"5\n"
        assert connection.sock.getsockname()[1] == port


# --- TLS, prefixes and the end


def test_a_witness_serves_tls(tmp_path: Path, certificates: Certificates) -> None:
    make_witness(tmp_path / "w", [LOG])
    cert, key = certificates.hub
    witness = WitnessProcess(tmp_path / "w", f"--tls-cert={cert}", f"--tls-key={key}")
    assert witness.url.startswith("https://")
    context = ssl.create_default_context(cafile=certificates.authority)
    body = LOG.request(0, 3).encode()
    assert request(witness.port, "POST", "/add-checkpoint", body, context=context).status == 200
    assert witness.stop() == 0


def test_all_routes_are_below_the_prefix(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG], "listen: {prefix: /a/witness}\n")
    witness = WitnessProcess(tmp_path / "w")
    assert witness.url.endswith("/a/witness")
    witness.cosigned(LOG, 0, 3)
    assert witness.get(f"/{LOG.hash}/checkpoint").status == 200
    assert request(witness.port, "POST", "/add-checkpoint", b"").status == 404
    witness.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_under_load_ends_the_witness_with_0_and_every_answer_is_durable(
    tmp_path: Path, number: signal.Signals
) -> None:
    make_witness(tmp_path / "w", [LOG])
    witness = WitnessProcess(tmp_path / "w")
    granted = [0]

    def ask() -> None:
        with contextlib.suppress(OSError, HTTPException):  # the witness ends while a request arrives
            while granted[-1] < len(LOG.entries):
                witness.cosigned(LOG, granted[-1], granted[-1] + 1)
                granted.append(granted[-1] + 1)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: granted[-1] > 3, "the load runs")
    assert witness.signal(number) == 0
    asking.join()
    again = WitnessProcess(tmp_path / "w")
    assert again.size_of(LOG) >= granted[-1]
    assert again.stop() == 0


def test_a_witness_that_cannot_write_its_state_cosigns_nothing_and_ends_with_1(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG])
    witness = WitnessProcess(tmp_path / "w")
    witness.cosigned(LOG, 0, 3)
    meta_pages = 2 * 4_096  # the log of the process is shorter; what LMDB writes lies behind them
    resource.prlimit(witness.process.pid, resource.RLIMIT_FSIZE, (meta_pages, meta_pages))
    answer = witness.post(LOG.request(3, 5))
    assert (answer.status, answer.body) == (500, b"the witness cannot write its state and stops\n")
    assert witness.signal(signal.SIGCONT) == 1  # it ends by itself
    again = WitnessProcess(tmp_path / "w")
    assert again.size_of(LOG) == 3
    again.stop()


def test_a_note_without_room_for_a_cosignature_is_refused_and_harms_no_other_log(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG, QUIET])
    witness = WitnessProcess(tmp_path / "w")
    room = MAX_NOTE_BYTES - len(LOG.checkpoint(3).encode())
    for spare in (2, 100):
        full = LOG.checkpoint(3, extension="x" * (room - spare) + "\n")
        answer = witness.post(LOG.request(0, 3, full))
        assert (answer.status, answer.body) == (
            400,
            b"with a cosignature, the note has more than 131072 bytes\n",
        )
    witness.cosigned(LOG, 0, 3)
    witness.cosigned(QUIET, 0, 3)
    assert witness.stop() == 0


def test_a_larger_tree_never_gets_an_earlier_time(tmp_path: Path) -> None:
    make_witness(tmp_path / "w", [LOG])
    clock = SetClock(1_000)

    async def story() -> list[int]:
        folder = WitnessFolder(tmp_path / "w")
        witness = Witness(folder, load(folder.config_file, {}), clock=clock)
        times: list[int] = []
        for old, size, now in ((0, 3, 1_000), (3, 5, 900), (5, 7, 1_001)):
            clock.time = now
            answer = await witness.add_checkpoint(LOG.request(old, size).encode())
            (line,) = parse_signatures(answer.body)
            times.append(cosigned_at(line.signature))
        await witness.stop()
        return times

    assert asyncio.run(story()) == [1_000, 1_000, 1_001]


def test_the_process_writes_its_key_to_no_core_file(witness: WitnessProcess) -> None:
    assert resource.prlimit(witness.process.pid, resource.RLIMIT_CORE) == (0, 0)
