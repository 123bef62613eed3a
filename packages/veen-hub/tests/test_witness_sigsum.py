"""Witness, log and verifier not written here: the tools of Sigsum, where they are installed.

Debian's packages are sigsum-go (sigsum-witness, sigsum-key, sigsum-submit, sigsum-verify) and sigsum-log-go
(sigsum-log-primary). ``VEEN_SIGSUM`` names a folder with the programs, if they are not on the PATH.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from veen_testing.ports import free_port

from .independent_log import IndependentLog
from .serving import request, until
from .witnessing import SIZE, Asked, WitnessProcess, make_witness

ENVIRONMENT = {**os.environ, "GODEBUG": "httpmuxgo121=0"}  # Debian builds them for the older router of Go


def tool(name: str) -> str:
    """Return the path of a program, or skip the test."""
    where = os.environ.get("VEEN_SIGSUM")
    found = shutil.which(name, path=where) if where else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: sigsum-go, sigsum-log-go; or set VEEN_SIGSUM)")
    return found


def run(*command: str | Path, given: str | None = None) -> str:
    ran = subprocess.run(
        [str(each) for each in command],
        input=given,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT,
    )
    assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    return ran.stdout


@contextmanager
def serving(port: int, log: Path, *command: str | Path) -> Iterator[None]:
    """Run a server until the block ends; enter the block when it accepts connections."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(each) for each in command], stdout=output, stderr=output, env=ENVIRONMENT
        )
    try:
        until(lambda: accepts(port) or process.poll() is not None, "the server listens")
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(30)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def openssh_key(public: bytes) -> str:
    def field(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    return f"ssh-ed25519 {base64.b64encode(field(b'ssh-ed25519') + field(public)).decode()} log\n"


def sigsum_log() -> IndependentLog:
    """Return a log with the only form of origin that sigsum-witness takes."""
    unnamed = IndependentLog("unnamed")
    origin = f"sigsum.org/v1/tree/{hashlib.sha256(bytes(unnamed.key.verify_key)).hexdigest()}"
    log = IndependentLog.of(origin, 40)
    log.key = unnamed.key
    return log


def test_a_log_not_written_here_is_cosigned_and_its_verifier_accepts_the_proof(tmp_path: Path) -> None:
    primary, key, submit, verify = map(
        tool, ("sigsum-log-primary", "sigsum-key", "sigsum-submit", "sigsum-verify")
    )
    for name in ("log", "submitter"):
        run(key, "generate", "-o", tmp_path / name)
    root = tmp_path / "witness"
    make_witness(root, [])
    log_vkey = run(key, "to-vkey", "-k", tmp_path / "log.pub").strip()
    (root / "witness.yaml").write_text(f"logs: [{{keys: ['{log_vkey}']}}]\n")
    witness = WitnessProcess(root)
    port = free_port()
    ours = run(key, "from-vkey", given=witness.vkey)
    policy = tmp_path / "policy"
    policy.write_text(
        f"log {run(key, 'to-hex', '-k', tmp_path / 'log.pub').strip()} http://127.0.0.1:{port}\n"
        f"witness ours {run(key, 'to-hex', given=ours).strip()} {witness.url}\n"
        "quorum ours\n"
    )
    (tmp_path / "sth.startup").write_text("startup=empty\n")
    command = [
        *(primary, "--backend=ephemeral", "--interval=1s", f"--key-file={tmp_path / 'log'}"),
        *(f"--policy-file={policy}", f"--sth-file={tmp_path / 'sth'}"),
        *(f"--external-endpoint=127.0.0.1:{port}", f"--internal-endpoint=127.0.0.1:{free_port()}"),
    ]
    with ExitStack() as stack:
        stack.callback(witness.kill)
        stack.enter_context(serving(port, tmp_path / "primary.log", *command))
        until(
            lambda: b"cosignature=" in request(port, "GET", "/get-tree-head").body,
            "the first tree is cosigned",
        )
        for number in range(3):  # the tree grows, so the log sends a consistency proof
            message = tmp_path / f"message {number}"
            message.write_text(f"message {number}\n")
            proof = tmp_path / f"proof {number}"
            run(submit, "-p", policy, "-k", tmp_path / "submitter", "-o", proof, message)
            run(verify, "-p", policy, "-k", tmp_path / "submitter.pub", proof, given=message.read_text())
        [seen] = witness.logs().values()
        assert (seen["size"], seen["contradictions"]) == (3, [])
        assert witness.stop() == 0


ROWS: list[tuple[str, int, int, list[bytes] | None, int]] = [
    ("the first checkpoint", 0, 1, None, 200),
    ("a larger tree", 1, 3, None, 200),
    ("a larger tree, the old one no power of two", 3, 8, None, 200),
    ("a larger tree, the old one a power of two", 8, 13, None, 200),
    ("the same tree again", 13, 13, None, 200),
    ("an old size that is too small", 8, 20, None, 409),
    ("a wrong proof", 13, 20, [bytes(32)] * 5, 422),
    ("an old size that is too large", 13, 12, [], 400),
]


def test_a_witness_not_written_here_and_ours_answer_alike(tmp_path: Path) -> None:
    """The same requests to both; each cosignature is verified without VEEN code."""
    program, key = tool("sigsum-witness"), tool("sigsum-key")
    log = sigsum_log()
    run(key, "generate", "-o", tmp_path / "foreign")
    (tmp_path / "log.pub").write_text(openssh_key(bytes(log.key.verify_key)))
    port = free_port()
    theirs = Asked()
    theirs.port = port
    make_witness(tmp_path / "ours", [log])
    ours = WitnessProcess(tmp_path / "ours")
    command = [
        *(program, "-k", tmp_path / "foreign", f"--log-key={tmp_path / 'log.pub'}"),
        *(f"--state-file={tmp_path / 'state'}", f"127.0.0.1:{port}"),
    ]
    with ExitStack() as stack:
        stack.callback(ours.kill)
        stack.enter_context(serving(port, tmp_path / "sigsum-witness.log", *command))
        for name, old, size, proof, status in ROWS:
            body = log.request(old, size, proof=proof)
            answers = [ours.post(body), theirs.post(body)]
            assert [answer.status for answer in answers] == [status, status], (name, answers)
            if status == 409:
                told = {(answer.headers["content-type"], answer.body) for answer in answers}
                assert told == {(SIZE, b"13\n")}
            if status == 200:
                theirs.vkey = foreign_vkey(key, tmp_path / "foreign.pub", answers[1].body.decode())
                theirs.cosigned(log, size, size)
                ours.cosigned(log, size, size)
        forked = log.fork(2, 20).request(13, 13)
        assert ours.post(forked).status == 409  # tlog-witness v1.0.0
        assert theirs.post(forked).status == 422  # a later draft of the page


def foreign_vkey(key: str, public: Path, line: str) -> str:
    """Return the verifier key of sigsum-witness, whose name is the one in its signature line."""
    name = line.split(" ")[1]
    return run(key, "to-vkey", "-k", public, "-n", name, "-t", "cosignature/v1").strip()
